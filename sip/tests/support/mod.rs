//! Processes out of module texts, joined by channels.
#![allow(dead_code, reason = "not every test uses all of it")]

use sip::compile::{Bounds, Options, compile};
use sip::contract::{Contract, Protocol, Side};
use sip::exec::{Exchange, Extern, Group, LinkError, Program, Store, Trap};
use sip::module::EntityType;
use sip::verify::verify;
use std::sync::Arc;

/// A heap, a contract, and processes.
pub struct World {
    /// The heap.
    pub heap: Arc<Exchange>,
    /// The processes.
    pub group: Group,
    /// Contracts offered to all processes; the text of a module names their modules `{Client NAME}`.
    pub protocols: Vec<Arc<Protocol>>,
    /// How modules are compiled.
    pub bounds: Bounds,
}

/// Compiles, proves and loads a module.
pub fn program(text: &str, bounds: Bounds) -> Arc<Program> {
    let bytes = wat::parse_str(text).expect("text");
    let options = Options {
        bounds,
        ..Options::default()
    };
    Program::load(verify(compile(&bytes, options).expect("compiles")).expect("proved")).expect("memory")
}

/// Instantiates a module whose imports are all services.
pub fn instantiate(store: &mut Store, program: &Arc<Program>) -> Result<usize, String> {
    let module = program.image().module.clone();
    let mut imports: Vec<Extern> = Vec::new();
    for import in &module.imports {
        let EntityType::Func(ty) = import.ty else {
            return Err("not a function".into());
        };
        let service = store.service(&import.module, &import.name, &module.types[ty as usize]);
        imports.push(service.ok_or("an unknown module")??);
    }
    store
        .instantiate(program, &imports)
        .map_err(|error: LinkError| error.to_string())
}

impl World {
    /// An empty world in which these contracts are known.
    pub fn new(contracts: &[&str]) -> Self {
        let heap = Exchange::new(8 << 20, 4096, 64).expect("memory");
        Self {
            group: Group::new(&heap),
            heap,
            protocols: contracts
                .iter()
                .map(|text| Protocol::new(Contract::parse(text).expect("a good contract")))
                .collect(),
            bounds: Bounds::Guard,
        }
    }

    /// Puts the modules' names for `{client NAME}` and `{server NAME}`.
    pub fn names(&self, text: &str) -> String {
        let mut text = text.to_string();
        for protocol in &self.protocols {
            for side in [Side::Client, Side::Server] {
                let contract = protocol.contract();
                let mark = format!("{{{} {}}}", side.name(), contract.name);
                text = text.replace(&mark, &contract.import_module(side));
            }
        }
        text
    }

    /// Adds a process that runs a module's `main`, or says why its imports cannot be met.
    pub fn try_add(&mut self, text: &str) -> Result<usize, String> {
        let text = self.names(text);
        let at = self.group.add().expect("memory");
        let program = program(&text, self.bounds);
        let store = self.group.store(at);
        for protocol in &self.protocols {
            store.offer(protocol);
        }
        let instance = instantiate(store, &program)?;
        if let Some(Extern::Func(main)) = store.export(instance, "main") {
            self.group.start(at, main);
        }
        Ok(at)
    }

    /// As [`Self::try_add`], of a module that is good.
    pub fn add(&mut self, text: &str) -> usize {
        self.try_add(text).expect("imports are met")
    }

    /// Runs two modules that are joined by a channel of the first contract.
    pub fn pair(&mut self, client: &str, server: &str) -> [Result<(), Trap>; 2] {
        let (client, server) = (self.add(client), self.add(server));
        let protocol = self.protocols[0].clone();
        self.group.connect(&protocol, client, server).expect("room");
        let mut outcomes = self.group.run().into_iter();
        [outcomes.next().expect("two"), outcomes.next().expect("two")]
    }

    /// Nothing is owned by anybody any more: every block can be had again, and no channel is open.
    pub fn is_empty(&self) -> bool {
        self.heap.channels().in_use() == 0 && self.heap.owners().owned() == 0
    }
}

/// The text of a trap.
pub fn words(outcome: &Result<(), Trap>) -> String {
    match outcome {
        Ok(()) => "ended".into(),
        Err(trap) => trap.to_string(),
    }
}
