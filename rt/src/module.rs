//! Modules in the system: libraries that stand once, at one address, for everybody (Deller & Heiser, *Linking
//! Programs in a Single Address Space*, USENIX 1999; `docs/modules.md`, decision 0055).
//!
//! A **module object** is an ordinary persistent object. It is made by [`shelf::install`], which checks the file, moves
//! it to the address that the object got, and seals it: from then on its text is mapped read and execute, its tables
//! and constants read, in every domain that has a capability. An **instance** is a data segment of the task's own. A
//! program's **table of instantiated modules** is a [`Modules`]; an import is looked for there first, then by name on
//! the shelf, which leads to the newest version. So a module is instantiated once in a table, cyclic imports end,
//! and a program that runs keeps what it has while others get what is newer.
//!
//! Nothing here is known to the kernel but objects, capabilities and page limits.

pub mod error;
pub mod shelf;

use alloc::{
    boxed::Box,
    string::{String, ToString},
    vec::Vec,
};

use linker::module::{format, instance};

pub use crate::call::foreign::call_at;
pub use error::{Error, Result};
pub use linker::module::Module;

use crate::{
    call,
    object::instance::{Arena, Segment},
    sync::Mutex,
};

/// When imports are bound.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Binding {
    /// When the instance is made, with all that the imported modules import.
    Eager,
    /// At the first call, where all uses are calls (section 4.2 of the paper).
    Lazy,
}

/// An instance in a table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Instance(usize);

#[cfg(all(target_os = "none", feature = "module"))]
impl Instance {
    /// The word that C has for it; 0 is none.
    pub(crate) const fn handle(self) -> u64 {
        self.0 as u64 + 1
    }
}

/// The table of the modules that a program has instantiated. It never moves: every instance knows its address.
#[derive(Debug)]
pub struct Modules(Mutex<Table>);

#[derive(Debug)]
struct Table {
    binding: Binding,
    shelf: shelf::Shelf,
    instances: Vec<Record>,
    arena: Arena,
    /// Segments of instances that were released, by the address of their module.
    pool: Vec<(u64, Segment)>,
    /// Functions that are still to be called for new instances, first to last.
    init: Vec<u64>,
    /// The instances that the change made which is going on, and the functions that they want called.
    made: Vec<usize>,
    made_init: Vec<u64>,
}

#[derive(Debug)]
struct Record {
    module: Module<'static>,
    /// None once it was released.
    segment: Option<Segment>,
    /// Its functions for the end were called, or there are none.
    ended: bool,
}

impl Modules {
    /// An empty table. It stays for as long as the program.
    pub fn new(binding: Binding) -> &'static Self {
        Box::leak(Box::new(Self::of(binding, Arena::new(), shelf::Shelf::new())))
    }

    /// The table of a program that was begun with memory for its segments and the object of the shelf.
    #[cfg(all(target_os = "none", feature = "module"))]
    pub(crate) fn with(binding: Binding, arena: Arena, shelf: Option<crate::Object>) -> Self {
        Self::of(binding, arena, shelf.map_or(shelf::Shelf::new(), shelf::Shelf::at))
    }

    const fn of(binding: Binding, arena: Arena, shelf: shelf::Shelf) -> Self {
        Self(Mutex::new(Table {
            binding,
            shelf,
            instances: Vec::new(),
            arena,
            pool: Vec::new(),
            init: Vec::new(),
            made: Vec::new(),
            made_init: Vec::new(),
        }))
    }

    /// The instance of the module of this name, made of its newest version if the table has none.
    ///
    /// # Errors
    /// If the module, or one that is bound at once, is not there or not what it was linked against; as `ObjCreate`,
    /// `PageCopy` and `PageLimit`.
    pub fn instance(&'static self, name: &str) -> Result<Instance> {
        self.change(|table, at| table.instance(at, name)).map(Instance)
    }

    /// The instance of the module of this name, if the table has one.
    pub fn known(&'static self, name: &str) -> Option<Instance> {
        self.0.lock().known(name).map(Instance)
    }

    /// A further instance of a module: of the version that the table has, else of the newest. Its imports are the
    /// table's. Data of a released instance is used again.
    ///
    /// # Errors
    /// As [`Modules::instance`].
    pub fn another(&'static self, name: &str) -> Result<Instance> {
        self.change(|table, at| {
            let known = table.known(name).map(|number| table.instances[number].module.clone());
            let module = known.map_or_else(|| table.shelf.find(name), Ok)?;
            table.another(at, &module)
        })
        .map(Instance)
    }

    /// An instance of the module at an address, whatever its name leads to now.
    ///
    /// # Errors
    /// As [`Modules::instance`]; damaged, if it is not a module that was installed there.
    pub fn instance_at(&'static self, address: u64) -> Result<Instance> {
        let module = shelf::at(address)?;
        self.change(|table, at| table.another(at, &module)).map(Instance)
    }

    /// The instance of the installed module at an address that is known to be one, and that is so long. Only its header is
    /// looked at.
    #[cfg(all(target_os = "none", feature = "module"))]
    pub(crate) fn sealed(&'static self, address: u64, bytes: u64) -> Result<Instance> {
        let module = shelf::sealed_at("the program", address, bytes)?;
        self.change(|table, at| table.another(at, &module)).map(Instance)
    }

    /// The instance that C has this word for.
    #[cfg(all(target_os = "none", feature = "module"))]
    pub(crate) fn of_handle(&'static self, handle: u64) -> Result<Instance> {
        let number = usize::try_from(handle.wrapping_sub(1)).unwrap_or(usize::MAX);
        let known = self
            .0
            .lock()
            .instances
            .get(number)
            .is_some_and(|record| record.segment.is_some());
        known.then_some(Instance(number)).ok_or(Error::NoInstance(handle))
    }

    /// Calls what all instances want called at their end, those of importers first. Each is called once, also where one of
    /// them comes back here.
    pub(crate) fn end(&'static self) {
        let order = {
            let table = self.0.lock();
            // Most programs have none.
            if table.instances.iter().all(|record| record.ended) {
                return;
            }
            let modules: Vec<Module<'static>> = table.instances.iter().map(|record| record.module.clone()).collect();
            instance::end_order(&modules)
        };
        for number in order {
            let functions = self.0.lock().ends_of(number);
            call::foreign::call_all(functions);
        }
    }

    /// Ends an instance and gives its data back, for [`Modules::another`]. Nothing of the instance may be used any more: not
    /// its functions, and no pointer to one.
    pub fn release(&'static self, instance: Instance) {
        let functions = self.0.lock().ends_of(instance.0);
        call::foreign::call_all(functions);
        let mut table = self.0.lock();
        let Some(record) = table.instances.get_mut(instance.0) else {
            return;
        };
        let address = record.module.address;
        if let Some(segment) = record.segment.take() {
            table.pool.push((address, segment));
        }
    }

    /// The address of an export, as every user of the instance sees it: a function that can be called, or a variable.
    pub fn symbol(&'static self, instance: Instance, name: &str) -> Option<u64> {
        let table = self.0.lock();
        let record = table.instances.get(instance.0)?;
        let value = record.module.value_of(name)?;
        Some(format::resolve(value, record.segment.as_ref()?.data))
    }

    /// The name of an instance's module.
    pub fn name(&'static self, instance: Instance) -> String {
        let table = self.0.lock();
        let record = table.instances.get(instance.0);
        record.map_or_else(String::new, |record| record.module.name().to_string())
    }

    /// The version of an instance's module.
    pub fn version(&'static self, instance: Instance) -> String {
        let table = self.0.lock();
        let record = table.instances.get(instance.0);
        record.map_or_else(String::new, |record| record.module.version().to_string())
    }

    /// The address of an instance's module: the same for everybody who uses that version.
    pub fn module_address(&'static self, instance: Instance) -> Option<u64> {
        Some(self.0.lock().instances.get(instance.0)?.module.address)
    }

    /// The address of an instance's data; none if its module has no data of an instance's own.
    pub fn data_address(&'static self, instance: Instance) -> Option<u64> {
        let data = self.0.lock().instances.get(instance.0)?.segment.as_ref()?.data;
        (data != 0).then_some(data)
    }

    /// How many instances there are.
    pub fn count(&'static self) -> usize {
        let table = self.0.lock();
        table.instances.iter().filter(|record| record.segment.is_some()).count()
    }

    /// The bases of the objects that hold the data of all instances: what a protected procedure needs, besides the
    /// modules, to call into them.
    pub fn memory(&'static self) -> Vec<u64> {
        self.0.lock().arena.objects().to_vec()
    }

    /// Binds the import whose descriptor has the word at `slot`; for the binder.
    pub(crate) fn bind_slot(&'static self, data: u64, slot: u32) -> Result<()> {
        self.change(|table, at| table.bind_slot(at, data, slot))
    }

    /// Changes the table, then calls the functions that new instances want called. The table is free meanwhile,
    /// because they may come back to have an import bound.
    fn change<T>(&'static self, change: impl FnOnce(&mut Table, u64) -> Result<T>) -> Result<T> {
        let at = core::ptr::from_ref(self) as u64;
        let result = {
            let mut table = self.0.lock();
            let result = change(&mut table, at);
            table.settle(result.is_err());
            result
        };
        loop {
            let pending = core::mem::take(&mut self.0.lock().init);
            if pending.is_empty() {
                return result;
            }
            call::foreign::call_all(pending);
        }
    }
}

impl Table {
    /// The first instance of a module that is still there.
    fn known(&self, name: &str) -> Option<usize> {
        let mut all = self.instances.iter();
        all.position(|record| record.segment.is_some() && record.module.is_named(name))
    }

    /// The instance of a module.
    fn instance(&mut self, at: u64, name: &str) -> Result<usize> {
        if let Some(known) = self.known(name) {
            return Ok(known);
        }
        let module = self.shelf.find(name)?;
        self.another(at, &module)
    }

    fn another(&mut self, at: u64, module: &Module<'static>) -> Result<usize> {
        let runtime = call::foreign::runtime(at);
        let pooled = self.pool.iter().position(|(address, _)| *address == module.address);
        let segment = match pooled {
            Some(place) => {
                let (_, mut segment) = self.pool.swap_remove(place);
                segment.renew(module, runtime);
                segment
            }
            None => self.arena.segment(module, runtime)?,
        };
        let record = Record {
            module: module.clone(),
            segment: Some(segment),
            ended: module.fini_count == 0,
        };
        // The place of a released one is taken again, or a long life would fill the table.
        let free = self.instances.iter().position(|record| record.segment.is_none());
        let number = free.unwrap_or(self.instances.len());
        match self.instances.get_mut(number) {
            Some(place) => *place = record,
            None => self.instances.push(record),
        }
        // It stands in the table before its imports are bound: cycles end here.
        self.made.push(number);
        self.complete(at, number, module)?;
        Ok(number)
    }

    /// The end of a change of the table. Where it failed, all instances that it made go: half of them must not be found
    /// by the next one who asks, and nobody but each other has seen them.
    fn settle(&mut self, failed: bool) {
        for number in core::mem::take(&mut self.made) {
            let record = &mut self.instances[number];
            if failed && let Some(segment) = record.segment.take() {
                self.pool.push((record.module.address, segment));
            }
        }
        let wanted = core::mem::take(&mut self.made_init);
        if !failed {
            self.init.extend(wanted);
        }
    }

    /// Binds what cannot wait, and notes the functions to be called.
    fn complete(&mut self, at: u64, number: usize, module: &Module<'static>) -> Result<()> {
        for index in 0..module.import_count() {
            if self.binding == Binding::Eager || !module.import(index).lazy {
                self.bind(at, number, index, None)?;
            }
        }
        if module.init_count > 0
            && let Some(segment) = &mut self.instances[number].segment
        {
            let init = &mut self.made_init;
            segment.change(|data| init.extend(instance::at_start(module, data)));
        }
        Ok(())
    }

    /// Binds an import of an instance; `export` is the one that is called, if a call is why.
    fn bind(&mut self, at: u64, number: usize, index: u32, export: Option<u32>) -> Result<()> {
        let module = self.instances[number].module.clone();
        let exporter = self.instance(at, module.import(index).name());
        let exporter = exporter.map_err(|error| error.wanted_by(module.name(), module.wanted(index, export)))?;
        let record = &self.instances[exporter];
        let exporter_module = record.module.clone();
        let exporter_data = record.segment.as_ref().map_or(0, |segment| segment.data);
        if let Some(segment) = &mut self.instances[number].segment {
            segment.change(|data| instance::bind(&module, data, index, &exporter_module, exporter_data, export))?;
        }
        Ok(())
    }

    /// The functions that an instance wants called at its end; none, if they were asked for before.
    fn ends_of(&mut self, number: usize) -> Vec<u64> {
        let mut functions = Vec::new();
        if let Some(record) = self.instances.get_mut(number)
            && let Some(segment) = &mut record.segment
            && !core::mem::replace(&mut record.ended, true)
        {
            segment.change(|data| functions.extend(instance::at_end(&record.module, data)));
        }
        functions
    }

    fn bind_slot(&mut self, at: u64, data: u64, slot: u32) -> Result<()> {
        let has = |record: &Record| record.segment.as_ref().is_some_and(|segment| segment.data == data);
        let number = self.instances.iter().position(has).ok_or(Error::NoInstance(data))?;
        let module = self.instances[number].module.clone();
        for index in 0..module.import_count() {
            let import = module.import(index);
            let export = slot.wrapping_sub(import.descriptor.wrapping_add(8)) / 8;
            if slot > import.descriptor && export < import.count {
                return self.bind(at, number, index, Some(export));
            }
        }
        Err(Error::NoInstance(data))
    }
}
