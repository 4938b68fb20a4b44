//! Modules in a process of the host (Linux, x86-64): for tests and measurements, and as the model of what the
//! system does. The object lies in an anonymous file; its text and constants are mapped once at the module's
//! address, the thunks shared before the data of every instance, the template copy-on-write.
//!
//! A [`Task`] is what a task is in the system: it has at most one instance of each module, unless told
//! otherwise, and a table of them. Several tasks may live in one process and share all text.

mod memory;

pub use memory::trap;

use linker::module::{Cause, Description, Fault, Module, format, instance};
use memory::{File, Frames, Mapping};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// An error on the way to a running instance.
#[derive(Debug)]
pub enum HostError {
    /// The module, or how it was linked.
    Module(Fault),
    /// The operating system; what was asked for, and its answer.
    System(&'static str, std::io::Error),
    /// Nobody has this module; who wants it.
    Unknown(String, String),
    /// The host's libraries have no such name.
    NoSymbol(String),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module(fault) => fault.fmt(f),
            Self::System(what, error) => write!(f, "{what}: {error}"),
            Self::Unknown(module, by) => write!(f, "{by}: imports {module}, which is not there: add it"),
            Self::NoSymbol(name) => write!(f, "the libraries of the host have no '{name}'"),
        }
    }
}

impl std::error::Error for HostError {}

impl From<Fault> for HostError {
    fn from(fault: Fault) -> Self {
        Self::Module(fault)
    }
}

/// A module whose text is in memory, for as long as somebody has it.
pub struct Library {
    /// Before the mapping, in which they lie.
    frames: RefCell<TextFrames>,
    bytes: Vec<u8>,
    file: File,
    _shared: Mapping,
}

/// How functions of the text are left, as long as there are instances. The unwinder of the host finds entries by the
/// instruction alone, so it knows the data of one instance for all of them. What it reaches through that (the personality
/// routine, the types of exceptions) is the same for each.
#[derive(Default)]
struct TextFrames {
    known: Option<(u64, Frames)>,
    instances: Vec<u64>,
}

impl Library {
    /// Brings a module object into memory, at its own address.
    ///
    /// # Errors
    /// If it is none, or something else lies at its address (a second copy of it, too).
    pub fn load(name: &str, bytes: Vec<u8>) -> Result<Rc<Self>, HostError> {
        let module = Module::open(name, &bytes)?;
        let text = module.part_at(format::Part::Text) as usize;
        let constants = module.part_at(format::Part::ReadOnly) as usize;
        let thunks = module.part_at(format::Part::Thunks) as usize;
        let file = File::new(name, &bytes)?;
        let shared = Mapping::shared_at(&file, module.address, text, constants, thunks)?;
        Ok(Rc::new(Self {
            frames: RefCell::default(),
            bytes,
            file,
            _shared: shared,
        }))
    }

    /// The module.
    pub fn module(&self) -> Module<'_> {
        Module::reopen(&self.bytes)
    }

    /// Notes an instance by the address of its data.
    fn enter(&self, data: u64) {
        let mut frames = self.frames.borrow_mut();
        frames.instances.push(data);
        self.know(&mut frames);
    }

    /// The instance goes.
    fn leave(&self, data: u64) {
        let mut frames = self.frames.borrow_mut();
        frames.instances.retain(|one| *one != data);
        if frames.known.as_ref().is_some_and(|(known, _)| *known == data) {
            frames.known = None;
            self.know(&mut frames);
        }
    }

    fn know(&self, frames: &mut TextFrames) {
        let module = self.module();
        let table = module.frames();
        if frames.known.is_none()
            && table.count() > 0
            && let Some(data) = frames.instances.first()
        {
            let part = module.address + u64::from(module.part_at(format::Part::Unwinding));
            let begin = part + table.entries_at() as u64;
            frames.known = Some((*data, Frames::register(begin, *data)));
        }
    }
}

/// When imports are bound.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Binding {
    /// When the instance is made.
    Eager,
    /// At the first call, where all uses are calls.
    Lazy,
}

/// An instance: thunks and data.
struct Instance {
    library: Rc<Library>,
    /// Of the thunks; before the memory, in which they lie.
    _frames: Option<Frames>,
    memory: Mapping,
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.library.leave(self.memory.data_address());
    }
}

impl Instance {
    fn new(library: &Rc<Library>, table: u64) -> Result<Self, HostError> {
        let module = library.module();
        let template = module.part_at(format::Part::Template) as usize;
        let thunks = module.part_at(format::Part::Thunks) as usize;
        let sizes = memory::Segment {
            thunks_at: thunks,
            thunk_bytes: module.thunk_bytes() as usize,
            template_at: template,
            template_bytes: module.template().len(),
            data_bytes: module.data_bytes as usize,
        };
        let mut memory = Mapping::segment(&library.file, &sizes)?;
        let at = memory.data_address();
        instance::finish(&module, at, memory::runtime(table), memory.data());
        let entries = u64::from(module.frames().thunk_entries_at);
        let begin = at - u64::from(module.thunk_bytes()) + entries;
        library.enter(at);
        Ok(Self {
            library: library.clone(),
            _frames: (entries > 0).then(|| Frames::register(begin, at)),
            memory,
        })
    }
}

/// The instances of a task, and where it finds modules. No borrow is held while a module's code runs, because
/// that code may come back to have an import bound.
pub struct Task(RefCell<Table>);

struct Table {
    libraries: BTreeMap<String, Rc<Library>>,
    foreign: BTreeMap<String, (u64, Vec<u64>)>,
    instances: Vec<Instance>,
    binding: Binding,
    /// Functions still to be called for new instances, first to last.
    init: Vec<u64>,
}

impl Drop for Task {
    /// Ends all instances, while all are still there.
    fn drop(&mut self) {
        let order = {
            let table = self.0.borrow();
            let modules: Vec<Module<'_>> = table.instances.iter().map(|one| one.library.module()).collect();
            instance::end_order(&modules)
        };
        for number in order {
            let (data, functions) = {
                let one = &mut self.0.borrow_mut().instances[number];
                let library = one.library.clone();
                let functions: Vec<u64> = instance::at_end(&library.module(), one.memory.data()).collect();
                (one.memory.data_address(), functions)
            };
            memory::finalize(data);
            for function in functions {
                memory::call(function, [0; 4]);
            }
        }
    }
}

impl Task {
    /// A task without modules. It stays where it is, because its instances hold its address.
    pub fn new(binding: Binding) -> Rc<Self> {
        Rc::new(Self(RefCell::new(Table {
            libraries: BTreeMap::new(),
            foreign: BTreeMap::new(),
            instances: Vec::new(),
            binding,
            init: Vec::new(),
        })))
    }

    /// Makes a module known by its name.
    pub fn add(&self, library: &Rc<Library>) {
        let name = library.module().name().to_string();
        self.0.borrow_mut().libraries.insert(name, library.clone());
    }

    /// Makes the host's C library known as the module that `description` describes.
    ///
    /// # Errors
    /// The first export that the C library does not have.
    pub fn add_foreign(&self, description: &Description) -> Result<(), HostError> {
        let mut addresses = Vec::new();
        let mut hash = format::HASH_START;
        for export in &description.exports {
            hash = format::extend_hash(hash, &export.name, export.data);
            let address = memory::host_symbol(&export.name);
            addresses.push(address.ok_or_else(|| HostError::NoSymbol(export.name.clone()))?);
        }
        let name = description.name.clone();
        self.0.borrow_mut().foreign.insert(name, (hash, addresses));
        Ok(())
    }

    /// The instance of a module in this task, made if there is none; its number.
    ///
    /// # Errors
    /// If the module or, bound eagerly, one that it imports is not there or not what it was linked against.
    pub fn instance(&self, name: &str) -> Result<usize, HostError> {
        self.change(|table, address| table.instance(address, name, "the task"))
    }

    /// A further instance of a module; its imports are the task's.
    ///
    /// # Errors
    /// As [`Task::instance`].
    pub fn another(&self, name: &str) -> Result<usize, HostError> {
        self.change(|table, address| table.another(address, name, "the task"))
    }

    /// Binds the import whose descriptor has the word at `slot`; for the binder.
    fn bind_slot(&self, data: u64, slot: u32) -> Result<(), HostError> {
        self.change(|table, address| table.bind_slot(address, data, slot))
    }

    /// Changes the table, then calls the functions that new instances want called.
    fn change<T>(&self, change: impl FnOnce(&mut Table, u64) -> Result<T, HostError>) -> Result<T, HostError> {
        let address = std::ptr::from_ref(self) as u64;
        let result = change(&mut self.0.borrow_mut(), address);
        loop {
            let pending = std::mem::take(&mut self.0.borrow_mut().init);
            if pending.is_empty() {
                return result;
            }
            for function in pending {
                memory::call(function, [0; 4]);
            }
        }
    }

    /// The address of an export of an instance, as every user of it sees it.
    pub fn symbol(&self, number: usize, name: &str) -> Option<u64> {
        let table = self.0.borrow();
        let instance = table.instances.get(number)?;
        let module = instance.library.module();
        let export = module.exports().find(|one| one.name == name)?;
        Some(format::resolve(export.value, instance.memory.data_address()))
    }

    /// Address of the data of an instance; `None` if there is none of that number.
    pub fn data_address(&self, number: usize) -> Option<u64> {
        Some(self.0.borrow().instances.get(number)?.memory.data_address())
    }

    /// How many instances there are.
    pub fn instances(&self) -> usize {
        self.0.borrow().instances.len()
    }

    /// Calls an exported function of up to four words; `None` if there is no such export.
    pub fn call(&self, number: usize, name: &str, arguments: [u64; 4]) -> Option<u64> {
        let address = self.symbol(number, name)?;
        Some(memory::call(address, arguments))
    }
}

impl Table {
    fn instance(&mut self, task: u64, name: &str, by: &str) -> Result<usize, HostError> {
        let known = self
            .instances
            .iter()
            .position(|one| one.library.module().is_named(name));
        match known {
            Some(number) => Ok(number),
            None => self.another(task, name, by),
        }
    }

    fn another(&mut self, task: u64, name: &str, by: &str) -> Result<usize, HostError> {
        let unknown = || HostError::Unknown(name.into(), by.into());
        let library = self.libraries.get(name).ok_or_else(unknown)?.clone();
        let number = self.instances.len();
        // It stands in the table before its imports are bound: cycles end here.
        self.instances.push(Instance::new(&library, task)?);
        let module = library.module();
        for index in 0..module.import_count() {
            if self.binding == Binding::Eager || !module.import(index).lazy {
                self.bind(task, number, index, None)?;
            }
        }
        self.init
            .extend(instance::at_start(&module, self.instances[number].memory.data()));
        Ok(number)
    }

    /// Binds an import of an instance; `called` is the export that is called, if a call is why.
    fn bind(&mut self, task: u64, number: usize, index: u32, called: Option<u32>) -> Result<(), HostError> {
        let library = self.instances[number].library.clone();
        let module = library.module();
        let import = module.import(index);
        if let Some((hash, addresses)) = self.foreign.get(import.name()) {
            if *hash != import.hash {
                let fault = Fault::file(module.name(), Cause::InterfaceChanged);
                return Err(fault.about(import.name()).into());
            }
            let data = self.instances[number].memory.data();
            let address = |export: u32| addresses.get(export as usize).copied().unwrap_or(0);
            instance::bind_foreign(&module, data, index, address);
            return Ok(());
        }
        let exporter = self.instance(task, import.name(), module.name())?;
        let exporter_library = self.instances[exporter].library.clone();
        let exporter_data = self.instances[exporter].memory.data_address();
        let data = self.instances[number].memory.data();
        instance::bind(&module, data, index, &exporter_library.module(), exporter_data, called)?;
        Ok(())
    }

    fn bind_slot(&mut self, task: u64, data: u64, slot: u32) -> Result<(), HostError> {
        let found = self.instances.iter().position(|one| one.memory.data_address() == data);
        let number = found.ok_or_else(|| HostError::Unknown("(none)".into(), format!("data {data:#x}")))?;
        let library = self.instances[number].library.clone();
        let module = library.module();
        let called = |index: u32| {
            let import = module.import(index);
            let export = slot.checked_sub(import.descriptor.wrapping_add(8))? / 8;
            (export < import.count).then_some((index, export))
        };
        match (0..module.import_count()).find_map(called) {
            Some((index, export)) => self.bind(task, number, index, Some(export)),
            None => Err(HostError::Unknown(format!("slot {slot}"), module.name().into())),
        }
    }
}
