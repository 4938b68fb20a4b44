//! The database in a domain of its own.
//!
//! [`install`] runs in a task whose image is then *kept*: code, its data and the pointer to the database
//! become a persistent object with registered entry points. The task ends; the service stays, without
//! a process, over power cuts, until it is removed. Its domain is its Clist: the image, the database,
//! and the Clist itself.
//!
//! To call a client back, the service's domain must hold a capability for the client's procedure. The
//! client hands it over with `connect`, and the service enters it in its own Clist. Neither sees
//! anything else of the other. Everything below runs on stacks of the service's domain, without a heap.
//!
//! One client at a time calls `insert` and `undo`: the database has no locks.

use rt::{
    Clist, Directory, Error, Kind, Object, Result,
    abi::layout::Capability,
    directory::Found,
    object::Attachment,
    pdx::{self, Domain, Entry},
    pdx_entry,
};

use crate::{
    client::{self, Operation},
    database::{Database, Words},
};

/// The database that this image serves. Part of the image, so it persists with it.
static SERVED: Attachment = Attachment::new();
/// The Clist of the service's domain.
static OWN_CLIST: Attachment = Attachment::new();

/// Questions to [`describe`] beside operations: how to connect and disconnect, and which objects there are to delete.
const CONNECT: u64 = 16;
const DISCONNECT: u64 = 17;
const PROPERTY: u64 = 18;

pdx_entry!(describe_entry, describe);
pdx_entry!(connect_entry, connect);
pdx_entry!(disconnect_entry, disconnect);
pdx_entry!(lookup_entry, lookup);
pdx_entry!(forward_entry, forward);
pdx_entry!(reverse_entry, reverse);
pdx_entry!(insert_entry, insert);
pdx_entry!(undo_entry, undo);
pdx_entry!(digest_entry, digest);

/// Where an operation is entered; 0 if there is no such operation.
fn describe(number: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    let entry = match number {
        1 => lookup_entry(),
        2 => forward_entry(),
        3 => reverse_entry(),
        4 => insert_entry(),
        5 => undo_entry(),
        6 => digest_entry(),
        CONNECT => connect_entry(),
        DISCONNECT => disconnect_entry(),
        PROPERTY => {
            let base = |attachment: &Attachment| attachment.object().map_or(0, |object| object.base());
            return (base(&OWN_CLIST), base(&SERVED));
        }
        _ => return (0, 0),
    };
    (entry.address(), 0)
}

/// Takes the capability of a client's procedure: 1 if it was taken.
fn connect(address: u64, password: u64, _: u64, _: u64) -> (u64, u64) {
    let inserted = OWN_CLIST
        .object()
        .map(|object| Clist::of_object(object).insert(Capability { address, password }));
    (u64::from(matches!(inserted, Some(Ok(())))), 0)
}

/// Gives it back; who knows the password may.
fn disconnect(address: u64, password: u64, _: u64, _: u64) -> (u64, u64) {
    let removed = OWN_CLIST
        .object()
        .map(|object| Clist::of_object(object).remove(Capability { address, password }));
    (u64::from(matches!(removed, Some(Ok(())))), 0)
}

/// Delivers to the client's procedure: a nested protected call, with an empty domain.
#[inline]
fn deliver_to(procedure: u64) -> impl FnMut(Words) {
    move |words| {
        // A client that cannot be called back misses the part; its checksum shows it.
        let _ = pdx::call(procedure, Domain::Empty, words);
    }
}

fn with_database(operate: impl FnOnce(Database<'_>) -> u64) -> (u64, u64) {
    (SERVED.region().and_then(Database::open).map_or(0, operate), 0)
}

fn lookup(id: u64, _: u64, _: u64, procedure: u64) -> (u64, u64) {
    with_database(|database| database.lookup(id, deliver_to(procedure)))
}

fn forward(id: u64, _: u64, _: u64, procedure: u64) -> (u64, u64) {
    with_database(|database| database.forward(id, deliver_to(procedure)))
}

fn reverse(id: u64, _: u64, _: u64, procedure: u64) -> (u64, u64) {
    with_database(|database| database.reverse(id, deliver_to(procedure)))
}

fn insert(w0: u64, w1: u64, w2: u64, procedure: u64) -> (u64, u64) {
    with_database(|database| database.insert([w0, w1, w2], deliver_to(procedure)))
}

fn undo(_: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    with_database(|database| database.undo())
}

fn digest(_: u64, _: u64, _: u64, _: u64) -> (u64, u64) {
    with_database(|database| database.digest())
}

/// Turns the image of the calling task into the service `name` for a database.
pub fn install(directory: &mut Directory, name: &str, database: &Object) -> Result<()> {
    let image = pdx::own_image().ok_or(Error::NotAProgram)?.0;
    let mut clist = pdx::clist_for(&[database])?;
    let clist_base = clist.object().base();
    pdx::grant(&mut clist, clist_base, rt::Rights::RW)?;
    if !SERVED.attach(database) || !OWN_CLIST.attach(clist.object()) {
        return Err(rt::abi::Error::InUse.into());
    }
    let entries = [
        describe_entry(),
        connect_entry(),
        disconnect_entry(),
        lookup_entry(),
        forward_entry(),
        reverse_entry(),
        insert_entry(),
        undo_entry(),
        digest_entry(),
    ];
    let password = pdx::register(image, &clist, &entries)?;

    // Kept and stable before the name leads there. Owner capabilities go to the root Clist, for this
    // task (what is kept is no longer its own) and for whoever removes the service.
    let mut root = Clist::root()?;
    for address in [image, clist_base] {
        // Those of objects that were here before are nobody's.
        root.remove_all(address)?;
        pdx::grant(&mut root, address, rt::Rights::OWNER)?;
        rt::call::keep_object(address)?;
        let bytes = rt::call::obj_info(address)?.bytes;
        rt::call::page_flush(address, bytes / rt::abi::address::PAGE)?;
    }
    let capability = Capability {
        address: image,
        password,
    };
    root.insert(capability)?;
    root.object().flush()?;
    directory.insert(
        name,
        Found {
            kind: Kind::Service,
            capability,
            word: describe_entry().address(),
        },
    )?;
    directory.object().flush()?;
    Ok(())
}

/// The service as its client sees it: addresses that it told.
pub struct Service {
    describe: u64,
    entries: [u64; 7],
    connect: u64,
    disconnect: u64,
}

impl Service {
    /// The service under a name.
    pub fn find(directory: &Directory, name: &str) -> Result<Self> {
        let found = directory.find(name)?;
        if found.kind != Kind::Service {
            return Err(Error::WrongKind(found.kind));
        }
        let describe = found.word;
        let ask = |number| pdx::call(describe, Domain::Empty, [number, 0, 0, 0]).map(|(address, _)| address);
        let mut entries = [0; 7];
        for (number, entry) in entries.iter_mut().enumerate().skip(1) {
            *entry = ask(number as u64)?;
        }
        Ok(Self {
            describe,
            entries,
            connect: ask(CONNECT)?,
            disconnect: ask(DISCONNECT)?,
        })
    }

    /// Calls an operation, with the client's procedure.
    #[inline]
    pub fn call(&self, operation: Operation, [w0, w1, w2]: [u64; 3], procedure: Entry) -> Result<u64> {
        let entry = self.entries[operation as usize];
        Ok(pdx::call(entry, Domain::Empty, [w0, w1, w2, procedure.address()])?.0)
    }

    /// The base addresses of the service's Clist and of the database.
    pub fn property(&self) -> Result<(u64, u64)> {
        Ok(pdx::call(self.describe, Domain::Empty, [PROPERTY, 0, 0, 0])?)
    }
}

pdx_entry!(pub deliver_entry, delivered);

fn delivered(w0: u64, w1: u64, w2: u64, w3: u64) -> (u64, u64) {
    client::deliver(w0, w1, w2, w3);
    (0, 0)
}

/// A client's procedure that a service may call, as long as this lives.
pub struct Connection<'s> {
    service: &'s Service,
    capability: Capability,
    /// The domain of the procedure: the client's image and nothing else.
    clist: Clist,
}

impl<'s> Connection<'s> {
    /// Registers the client's procedure and hands it to the service.
    pub fn open(service: &'s Service) -> Result<Self> {
        let address = pdx::own_image().ok_or(Error::NotAProgram)?.0;
        let clist = pdx::clist_for(&[])?;
        let password = pdx::register(address, &clist, &[deliver_entry()])?;
        let (taken, _) = pdx::call(service.connect, Domain::Empty, [address, password, 0, 0])?;
        if taken != 1 {
            return Err(rt::abi::Error::TableFull.into());
        }
        Ok(Self {
            service,
            capability: Capability { address, password },
            clist,
        })
    }

    /// Takes the procedure back.
    pub fn close(self) -> Result<()> {
        let Capability { address, password } = self.capability;
        pdx::call(self.service.disconnect, Domain::Empty, [address, password, 0, 0])?;
        rt::call::obj_passwd(address, password, 0)?;
        self.clist.delete()?;
        Ok(())
    }
}
