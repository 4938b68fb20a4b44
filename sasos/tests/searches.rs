//! Searches for a right through long Clists: in pieces, to the same end, and never by what is gone.

mod common;

use abi::{
    Call, Error, Rights,
    address::PAGE,
    layout::{APD_SLOTS, CALL_DEPTH_MAX, Capability, ClistHeader, INFO_USED, PD_MERGE},
};
use common::{Actor, Order, Rig};
use kcore::{Machine, thread::Resumed};
use sasos::{
    Access, Event, Outcome, Step,
    accounts::{AccountId, Resource, limits},
    protection::{apd::Apd, clist::UNSORTED_MAX, validation::PdxGrant},
};

const R: u64 = Rights::R.bits() as u64;
const W: u64 = Rights::W.bits() as u64;
const D: u64 = Rights::D.bits() as u64;

/// Accesses to memory of the machine in one event: a piece, and what else there is to a call.
const BOUND: u64 = 100;

/// An owner with an object, and somebody whose APD has as many Clists as there may be, each as long as is looked at and full of
/// capabilities with the wrong passwords for it. The places that a test names hold others.
struct Crowd {
    rig: Rig,
    owner: Actor,
    seeker: Actor,
    base: u64,
    lists: Vec<u64>,
}

/// Clist and capability in it.
type At = (usize, u64);
const FIRST: At = (0, 0);
const LAST: At = (APD_SLOTS - 1, UNSORTED_MAX - 1);

impl Crowd {
    fn new(seed: u64) -> Self {
        let mut rig = Rig::new(seed, 8000, 8192);
        let owner = rig.actor(Apd::EMPTY);
        let seeker = rig.actor(Apd::EMPTY);
        let (base, _) = rig.call(owner, Call::ObjCreate, &[2 * PAGE, 0]).unwrap();
        let wrong = Capability {
            address: base,
            password: 1,
        };
        let mut lists = Vec::new();
        for _ in 0..APD_SLOTS {
            let bytes = (UNSORTED_MAX + 2) * 16;
            let (list, _) = rig.call(seeker, Call::ObjCreate, &[bytes, 0]).unwrap();
            let full = vec![wrong; UNSORTED_MAX as usize];
            rig.write_clist(seeker.space, list, &full, Order::Any);
            rig.call(seeker, Call::ApdInsert, &[lists.len() as u64, list]).unwrap();
            lists.push(list);
        }
        Self {
            rig,
            owner,
            seeker,
            base,
            lists,
        }
    }

    /// A password for some rights, which the owner registers.
    fn password(&mut self, password: u64, rights: u64) {
        self.rig
            .call(self.owner, Call::ObjPasswd, &[self.base, password, rights])
            .unwrap();
    }

    /// Writes a password into a Clist.
    fn put(&mut self, (list, place): At, password: u64) {
        let at = self.lists[list] + 32 + place * 16 + 8;
        self.rig.store(self.seeker.space, at, password).unwrap();
    }

    fn look_up(&mut self, rights: u64) -> Result<(u64, u64), Error> {
        self.rig.call(self.seeker, Call::ApdLookup, &[self.base, rights])
    }

    /// One event of a fault.
    fn fault(&mut self) -> Outcome {
        let event = Event::Fault {
            thread: self.seeker.thread,
            address: self.base,
            access: Access::Read,
        };
        self.rig.server.handle(&mut self.rig.world, event)
    }

    /// A piece of the search for an entry.
    fn grant(&mut self, entry: u64) -> Step<PdxGrant> {
        let Rig { server, world, .. } = &mut self.rig;
        let caller = server.caller(world, self.seeker.thread, Resumed::Woken);
        server.pdx_grant(world, caller.domain, entry)
    }

    fn has(&self) -> Rights {
        self.rig.server.known_rights(self.seeker.space, self.base)
    }
}

#[test]
fn what_stands_last_is_found_in_pieces() {
    let mut crowd = Crowd::new(1);
    crowd.password(7, R);
    crowd.put(LAST, 7);
    let longest = crowd.rig.longest_event(crowd.seeker, Call::ApdLookup, &[crowd.base, R]);
    assert!(longest < BOUND, "{longest} accesses in one event");
    crowd.rig.call(crowd.seeker, Call::ApdFlush, &[]).unwrap();
    let place = crowd.lists[LAST.0] + 32 + LAST.1 * 16;
    assert_eq!(crowd.look_up(R), Ok((place, 0)));
    crowd.rig.check();
}

#[test]
fn what_is_nowhere_is_refused_after_as_many_pieces_as_it_takes() {
    let mut crowd = Crowd::new(2);
    assert_eq!(crowd.look_up(R), Err(Error::Protection));
    // Somebody may have written it meanwhile: nothing is remembered of a search that failed.
    crowd.password(7, R);
    crowd.put(FIRST, 7);
    crowd.look_up(R).unwrap();
}

/// As many short Clists: each is begun for a share of the event, too.
#[test]
fn sorted_clists_are_searched_in_pieces() {
    let mut crowd = Crowd::new(9);
    let wrong = Capability {
        address: crowd.base,
        password: 1,
    };
    for list in crowd.lists.clone() {
        let (space, filler) = (crowd.seeker.space, [wrong; 200]);
        crowd.rig.write_clist(space, list, &filler, Order::Sorted);
    }
    crowd.password(7, R);
    crowd.put((LAST.0, 10), 7);
    let longest = crowd.rig.longest_event(crowd.seeker, Call::ApdLookup, &[crowd.base, R]);
    assert!(longest < BOUND, "{longest} accesses in one event");
}

#[test]
fn a_fault_looks_in_pieces_too() {
    let mut crowd = Crowd::new(3);
    crowd.password(7, R);
    crowd.put(LAST, 7);
    let mut events = 0;
    while crowd.has() == Rights::NONE {
        let before = crowd.rig.world.kernel.hardware.accesses();
        assert_eq!(crowd.fault(), Outcome::Resume);
        let accesses = crowd.rig.world.kernel.hardware.accesses() - before;
        assert!(accesses < BOUND, "{accesses} accesses in one event");
        events += 1;
        assert!(events < 1000, "it never ends");
    }
    assert!(events > 100, "{events} events are no pieces");
}

/// The whole of a search that several rights come from; and all that there are, for a report.
#[test]
fn rights_add_up_over_the_pieces() {
    let mut crowd = Crowd::new(4);
    crowd.password(7, W);
    crowd.password(8, D);
    crowd.put(FIRST, 7);
    crowd.put(LAST, 8);
    crowd.look_up(W | D).unwrap();
    crowd.rig.call(crowd.seeker, Call::ApdFlush, &[]).unwrap();
    let (buffer, _) = crowd.rig.call(crowd.seeker, Call::ObjCreate, &[PAGE, 0]).unwrap();
    for (flags, all) in [(INFO_USED, false), (0, true)] {
        let told = crowd
            .rig
            .call(crowd.seeker, Call::ObjInfo, &[crowd.base, flags, buffer, PAGE]);
        told.unwrap();
        assert_eq!(crowd.has().contains(Rights::D), all, "flags {flags}");
    }
}

#[test]
fn a_right_that_is_taken_away_between_two_pieces_is_gone() {
    let mut crowd = Crowd::new(5);
    crowd.password(7, W);
    crowd.password(8, D);
    crowd.put(FIRST, 7);
    crowd.put(LAST, 8);
    let arguments = [crowd.base, W | D];
    assert_eq!(
        crowd
            .rig
            .begin(crowd.seeker, Call::ApdLookup, &arguments, Resumed::First),
        None
    );
    assert_eq!(crowd.has(), Rights::RW);
    crowd.password(7, 0);
    assert_eq!(crowd.has(), Rights::NONE);
    for _ in 0..10_000 {
        match crowd
            .rig
            .begin(crowd.seeker, Call::ApdLookup, &arguments, Resumed::Woken)
        {
            None => {}
            Some(result) => {
                assert_eq!(result, Err(Error::Protection));
                assert_eq!(crowd.has(), Rights::D);
                return;
            }
        }
    }
    panic!("it never ends");
}

/// A capability written where a search has been is found by the next one, however the first one ended.
#[test]
fn no_search_goes_on_where_another_one_stopped() {
    for given_up in 0..3 {
        let mut crowd = Crowd::new(6);
        crowd.password(7, R);
        // So that writing there needs no search.
        crowd.put(FIRST, 1);
        assert_eq!(crowd.fault(), Outcome::Resume);
        crowd.put(FIRST, 7);
        match given_up {
            // The thread does something else.
            0 => drop(crowd.rig.call(crowd.seeker, Call::ClockRead, &[]).unwrap()),
            // Another one found the right, and lost it again with the cache.
            1 => {
                let seeker = crowd.seeker;
                let sibling = crowd.rig.sibling(seeker);
                crowd.rig.call(sibling, Call::ApdLookup, &[crowd.base, R]).unwrap();
                crowd.rig.call(sibling, Call::ApdFlush, &[]).unwrap();
            }
            // Or the object was taken away.
            _ => {
                crowd.password(8, R);
                crowd.password(8, 0);
            }
        }
        // Found in the first piece, or it would take hundreds.
        assert_eq!(crowd.fault(), Outcome::Resume);
        assert_eq!(crowd.has(), Rights::R, "given up {given_up}");
    }
}

/// The same place in a Clist that one search has passed may hold what another one looks for.
#[test]
fn a_search_for_something_else_begins_anew() {
    let mut crowd = Crowd::new(10);
    crowd.rig.registers(crowd.owner, crowd.base, 9, 0);
    crowd.put(FIRST, 9);
    assert_eq!(crowd.fault(), Outcome::Resume);
    let grant = crowd.grant(crowd.base);
    assert_eq!(grant.map(|grant| grant.password), Ok(9));
}

/// An object with as many passwords as there may be: each capability is compared with all of them.
#[test]
fn many_passwords_make_shorter_pieces() {
    let mut lookups = Vec::new();
    for passwords in [1, 100] {
        let mut crowd = Crowd::new(11);
        for password in 0..passwords {
            crowd.password(100 + password, R);
        }
        let mut events = 0;
        let arguments = [crowd.base, R];
        let mut resumed = Resumed::First;
        while crowd
            .rig
            .begin(crowd.seeker, Call::ApdLookup, &arguments, resumed)
            .is_none()
        {
            resumed = Resumed::Woken;
            events += 1;
        }
        lookups.push(events);
    }
    assert!(lookups[1] > 4 * lookups[0], "{lookups:?} events");
}

/// Two searches by turns, and a report that looks for what is nowhere, with its buffer to be looked for, too: each ends.
#[test]
fn searches_do_not_drive_each_other_out() {
    let mut crowd = Crowd::new(7);
    crowd.password(7, R);
    crowd.put(LAST, 7);
    let (buffer, password) = crowd.rig.call(crowd.owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    let at = crowd.lists[LAST.0] + 32 + (LAST.1 - 1) * 16;
    crowd.rig.store(crowd.seeker.space, at, buffer).unwrap();
    crowd.rig.store(crowd.seeker.space, at + 8, password).unwrap();
    crowd
        .rig
        .call(crowd.seeker, Call::ObjInfo, &[crowd.base, 0, buffer, PAGE])
        .unwrap();
    crowd.rig.check();
}

/// A protected call that shows a Clist: the right to that, the right to the description and the entry are all searched for, each as far away as
/// can be.
#[test]
fn a_protected_call_ends_its_searches() {
    let mut crowd = Crowd::new(12);
    crowd.rig.registers(crowd.owner, crowd.base, 9, 0);
    let (shown, password) = crowd.rig.call(crowd.owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    let (owner, seeker) = (crowd.owner.space, crowd.seeker.space);
    crowd.rig.write_clist(owner, shown, &[], Order::Any);
    crowd.put(LAST, 9);
    let at = crowd.lists[LAST.0] + 32 + (LAST.1 - 1) * 16;
    crowd.rig.store(seeker, at, shown).unwrap();
    crowd.rig.store(seeker, at + 8, password).unwrap();
    // A description: one Clist, none locked.
    let (description, _) = crowd.rig.call(crowd.seeker, Call::ObjCreate, &[PAGE, 0]).unwrap();
    for (index, word) in [1, 0, shown].into_iter().enumerate() {
        crowd.rig.store(seeker, description + index as u64 * 8, word).unwrap();
    }
    let mut resumed = Resumed::First;
    for _ in 0..10_000 {
        let event = Event::Call {
            thread: crowd.seeker.thread,
            number: Call::PdxCall as u64,
            arguments: [crowd.base, 0, description, 0, 0, 0],
            resumed,
        };
        match crowd.rig.server.handle(&mut crowd.rig.world, event) {
            Outcome::Again => resumed = Resumed::Woken,
            outcome => {
                assert_eq!(outcome, Outcome::Resume);
                return;
            }
        }
    }
    panic!("it never ends");
}

/// The password by which a Clist is read is compared with all of the Clist's passwords. A call that shows many goes on with the next one.
#[test]
fn clists_with_many_passwords_are_shown_in_pieces() {
    let mut rig = Rig::new(15, 8000, 8192);
    let owner = rig.actor(Apd::EMPTY);
    let base = rig.service(owner, 9);
    let (description, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    let shown = APD_SLOTS as u64;
    rig.store(owner.space, description, shown).unwrap();
    for number in 0..shown {
        let (clist, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
        for password in 0..100 {
            rig.call(owner, Call::ObjPasswd, &[clist, 100 + password, R]).unwrap();
        }
        rig.write_clist(owner.space, clist, &[], Order::Any);
        rig.store(owner.space, description + (2 + number) * 8, clist).unwrap();
    }
    let mut events = 0;
    for resumed in [Resumed::First; 1].into_iter().chain([Resumed::Woken; 1000]) {
        events += 1;
        let event = Event::Call {
            thread: owner.thread,
            number: Call::PdxCall as u64,
            arguments: [base, 0, description, 0, 0, 0],
            resumed,
        };
        match rig.server.handle(&mut rig.world, event) {
            Outcome::Again => {}
            outcome => {
                assert_eq!(outcome, Outcome::Resume);
                break;
            }
        }
    }
    assert!((3..10).contains(&events), "{events} events");
    let inside = rig.world.thread_space(owner.thread);
    assert_eq!(rig.server.domain_apd(inside).count(), APD_SLOTS);
    rig.check();
}

/// Removing a capability moves those behind it. One that was there all the time is found.
#[test]
fn what_moves_up_between_two_pieces_is_found() {
    let mut crowd = Crowd::new(13);
    crowd.password(7, R);
    // This finds where the first piece stops.
    assert_eq!(crowd.fault(), Outcome::Resume);
    let mut pieces = 0;
    for place in 1..400 {
        let mut crowd = Crowd::new(13);
        crowd.password(7, R);
        crowd.put((0, place), 7);
        assert_eq!(crowd.fault(), Outcome::Resume);
        if crowd.has() != Rights::NONE {
            continue;
        }
        crowd.put((0, place - 1), 7);
        crowd.put((0, place), 1);
        for _ in 0..1000 {
            assert_eq!(crowd.fault(), Outcome::Resume, "place {place}");
            if crowd.has() != Rights::NONE {
                break;
            }
        }
        assert_eq!(crowd.has(), Rights::R, "place {place}");
        pieces += 1;
        if pieces == 3 {
            return;
        }
    }
    panic!("no piece ended");
}

/// An entry is looked for in one way with the owner's right to it, which is as good.
#[test]
fn an_owner_enters_whatever_stands_behind_its_capability() {
    for (rights, entry, found) in [
        (Some(Rights::OWNER), 0, Ok(())),
        (Some(Rights::OWNER), 64, Err(Error::NotAnEntry)),
        (Some(Rights::RWX), 0, Err(Error::Protection)),
        (None, 0, Ok(())),
        (None, 64, Err(Error::NotAnEntry)),
    ] {
        let mut crowd = Crowd::new(8);
        crowd.rig.registers(crowd.owner, crowd.base, 9, 0);
        match rights {
            Some(rights) => {
                crowd.password(7, rights.bits().into());
                crowd.put(FIRST, 7);
            }
            None => crowd.put(LAST, 9),
        }
        // The search alone, piece by piece: to enter, the thread would have to run.
        let mut result = Err(sasos::Stop::Again);
        for _ in 0..10_000 {
            result = crowd.grant(crowd.base + entry);
            if !matches!(result, Err(sasos::Stop::Again)) {
                break;
            }
        }
        let result = result.map(drop);
        assert_eq!(result, found.map_err(sasos::Stop::Fail), "{rights:?} {entry:#x}");
    }
}

/// A protected call that shows as many Clists as there may be, each of which is found at the end of a piece: all searches of an event have one budget.
#[test]
fn a_call_with_many_searches_is_done_in_pieces() {
    let mut crowd = Crowd::new(14);
    crowd.rig.registers(crowd.owner, crowd.base, 9, 0);
    let owner = crowd.owner;
    let (description, _) = crowd.rig.call(crowd.seeker, Call::ObjCreate, &[PAGE, 0]).unwrap();
    let (count, first) = (APD_SLOTS as u64, 200);
    crowd.rig.store(crowd.seeker.space, description, count).unwrap();
    for number in 0..count {
        let (shown, password) = crowd.rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
        crowd.rig.write_clist(owner.space, shown, &[], Order::Any);
        let at = crowd.lists[0] + 32 + (first + number) * 16;
        crowd.rig.store(crowd.seeker.space, at, shown).unwrap();
        crowd.rig.store(crowd.seeker.space, at + 8, password).unwrap();
        let slot = description + (2 + number) * 8;
        crowd.rig.store(crowd.seeker.space, slot, shown).unwrap();
    }
    crowd.put((0, first + count), 9);
    let mut resumed = Resumed::First;
    for _ in 0..1000 {
        let event = Event::Call {
            thread: crowd.seeker.thread,
            number: Call::PdxCall as u64,
            arguments: [crowd.base, 0, description, 0, 0, 0],
            resumed,
        };
        let before = crowd.rig.world.kernel.hardware.accesses();
        let outcome = crowd.rig.server.handle(&mut crowd.rig.world, event);
        let accesses = crowd.rig.world.kernel.hardware.accesses() - before;
        assert!(accesses < 2 * BOUND, "{accesses} accesses in one event");
        if outcome == Outcome::Resume {
            return;
        }
        assert_eq!(outcome, Outcome::Again);
        resumed = Resumed::Woken;
    }
    panic!("it never ends");
}

/// A right that comes from two capabilities, in a domain that has no room for all that it uses: another thread of it takes the place of what was found
/// first.
#[test]
fn what_was_found_first_counts_though_its_place_is_needed() {
    let mut rig = Rig::new(15, 8000, 8192);
    let owner = rig.actor(Apd::EMPTY);
    let mut limits = limits::of_frames(4000);
    limits[Resource::Bytes as usize] = 80 << 10;
    let seeker = rig.actor_in(AccountId::ROOT, limits);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 0]).unwrap();
    for (password, rights) in [(7, W), (8, D)] {
        rig.call(owner, Call::ObjPasswd, &[base, password, rights]).unwrap();
    }
    let (list, _) = rig
        .call(seeker, Call::ObjCreate, &[(UNSORTED_MAX + 2) * 16, 0])
        .unwrap();
    let mut capabilities = vec![
        Capability {
            address: base,
            password: 1
        };
        UNSORTED_MAX as usize
    ];
    capabilities[0].password = 7;
    capabilities[UNSORTED_MAX as usize - 1].password = 8;
    rig.write_clist(seeker.space, list, &capabilities, Order::Any);
    rig.call(seeker, Call::ApdInsert, &[0, list]).unwrap();
    let sibling = rig.sibling(seeker);
    let mut others = Vec::new();
    while let Ok((other, _)) = rig.call(seeker, Call::ObjCreate, &[PAGE, 0]) {
        others.push(other);
    }
    let arguments = [base, W | D];
    let mut resumed = Resumed::First;
    let mut turn = others.iter().cycle();
    for _ in 0..1000 {
        if let Some(result) = rig.begin(seeker, Call::ApdLookup, &arguments, resumed) {
            assert!(result.is_ok(), "{result:?}");
            return;
        }
        resumed = Resumed::Woken;
        for _ in 0..130 {
            let other = *turn.next().expect("there are some");
            rig.call(sibling, Call::ApdLookup, &[other, R]).unwrap();
        }
    }
    panic!("it never ends");
}

/// A sorted Clist of 128 GiB that is empty but for the places that a search by halves looks at, and these: all smaller than what is sought.
struct Sparse {
    list: u64,
    middles: Vec<u64>,
    count: u64,
}

impl Sparse {
    fn new(rig: &mut Rig, actor: Actor, slot: u64) -> Self {
        let bytes = 1 << 37;
        let (list, _) = rig.call(actor, Call::ObjCreate, &[bytes, 0]).unwrap();
        let count = (bytes - ClistHeader::BYTES as u64) / 16;
        let (mut low, mut middles) = (0, Vec::new());
        while count - low > 12 {
            let middle = low + (count - low) / 2;
            middles.push(middle);
            low = middle + 1;
        }
        let sparse = Self { list, middles, count };
        rig.write_clist(actor.space, list, &[], Order::Sorted);
        rig.store(actor.space, list + 24, count).unwrap();
        for &middle in &sparse.middles {
            sparse.put(rig, actor, middle, (PAGE, 0));
        }
        rig.call(actor, Call::ApdInsert, &[slot, list]).unwrap();
        sparse
    }

    fn at(&self, place: u64) -> u64 {
        self.list + ClistHeader::BYTES as u64 + place * 16
    }

    fn put(&self, rig: &mut Rig, actor: Actor, place: u64, (address, password): (u64, u64)) {
        rig.store(actor.space, self.at(place), address).unwrap();
        rig.store(actor.space, self.at(place) + 8, password).unwrap();
    }
}

/// Two Clists as long as an object may be.
fn sparse_lists(seed: u64) -> (Rig, Actor, u64, [Sparse; 2]) {
    let mut rig = Rig::new(seed, 8000, 8192);
    let owner = rig.actor(Apd::EMPTY);
    let (base, _) = rig.call(owner, Call::ObjCreate, &[PAGE, 7]).unwrap();
    let seeker = rig.actor(Apd::EMPTY);
    let lists = [0, 1].map(|slot| Sparse::new(&mut rig, seeker, slot));
    (rig, seeker, base, lists)
}

/// Each half costs a read, and two lists take sixty.
#[test]
fn the_longest_sorted_clists_are_halved_in_pieces() {
    let (mut rig, seeker, base, lists) = sparse_lists(16);
    let last = lists[1].count - 1;
    lists[1].put(&mut rig, seeker, last, (base, 7));
    let longest = rig.longest_event(seeker, Call::ApdLookup, &[base, R]);
    assert!(longest < BOUND, "{longest} accesses in one event");
    rig.call(seeker, Call::ApdFlush, &[]).unwrap();
    let found = rig.call(seeker, Call::ApdLookup, &[base, R]);
    assert_eq!(found, Ok((lists[1].at(last), 0)));
    rig.check();
}

/// Capabilities move into the part of a list that a search has passed: then the list is halved from its beginning.
#[test]
fn what_moves_up_between_two_halves_is_found() {
    for shorter in [false, true] {
        let (mut rig, seeker, base, lists) = sparse_lists(17);
        let begun = rig.begin(seeker, Call::ApdLookup, &[base, R], Resumed::First);
        assert_eq!(begun, None, "it takes more than one piece");
        let list = &lists[1];
        let place = list.middles[0];
        list.put(&mut rig, seeker, place, (base, 7));
        for &middle in &list.middles[1..] {
            list.put(&mut rig, seeker, middle, (1 << 60, 0));
        }
        if shorter {
            rig.store(seeker.space, list.list + 24, place + 1).unwrap();
        }
        let found = (0..20).find_map(|_| rig.begin(seeker, Call::ApdLookup, &[base, R], Resumed::Woken));
        assert_eq!(found, Some(Ok((list.at(place), 0))), "shorter: {shorter}");
    }
}

/// The deepest of merged callees looks for what only the first caller has: each piece passes the domains that an earlier one has asked. When all were asked
/// anew, the way up took the whole budget of an event, and the call never ended.
#[test]
fn a_call_from_the_deepest_callee_ends() {
    const PASSWORD: u64 = 9;
    let mut rig = Rig::new(21, 8000, 8192);
    let (owner, client) = (rig.actor(Apd::EMPTY), rig.actor(Apd::EMPTY));
    let services: Vec<u64> = (0..CALL_DEPTH_MAX).map(|_| rig.service(owner, PASSWORD)).collect();
    let held: Vec<Capability> = services
        .iter()
        .map(|&address| Capability {
            address,
            password: PASSWORD,
        })
        .collect();
    let (list, _) = rig.call(client, Call::ObjCreate, &[PAGE, 0]).unwrap();
    rig.write_clist(client.space, list, &held, Order::Any);
    rig.call(client, Call::ApdInsert, &[0, list]).unwrap();
    for &service in &services {
        rig.enters(client, service, PD_MERGE).expect("a callee");
    }
    assert_eq!(rig.world.portal_depth(client.thread), CALL_DEPTH_MAX);
    rig.check();
}
