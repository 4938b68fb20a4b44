//! What must be private to an instance.
//!
//! Variables are. A function is if it names anything private: it needs the data register. A table of
//! addresses is if it names anything private: its contents differ. Naming goes from function to function
//! (a direct call keeps the register, so the callee may need it) and through tables, hence a graph; what is
//! not reached from a variable or an import is shared, and its addresses are constants. A shared function
//! may use `rbx` for itself: it follows the calling convention and gives it back.

use super::code::{Form, Function};
use super::frames;
use super::input::{Home, Input, Kind};
use super::symbols::{Symbols, Target};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Number of a function or section in the graph.
pub type Node = usize;

/// Why something is private.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It is a variable.
    Variable,
    /// It names an import.
    Import,
    /// It names this private node.
    Names(Node),
}

/// The sections that count, cut into functions where they are text.
#[derive(Debug)]
pub struct Graph {
    /// For each file and section its first node and how many there are, if it is in memory.
    first: Vec<Vec<Option<(Node, usize)>>>,
    /// For each node its file and section.
    pub places: Vec<(usize, usize)>,
    /// For each node of text its function.
    pub functions: Vec<Option<Function>>,
    /// For each node why it is private, if it is.
    pub private: Vec<Option<Reason>>,
}

impl Graph {
    /// Reads the text of all live sections.
    pub fn new(inputs: &[Input], live: &[Vec<bool>]) -> Self {
        let mut graph = Self {
            first: Vec::new(),
            places: Vec::new(),
            functions: Vec::new(),
            private: Vec::new(),
        };
        for (file, input) in inputs.iter().enumerate() {
            let mut starts: Vec<Vec<u64>> = vec![Vec::new(); input.sections.len()];
            for symbol in &input.symbols {
                if let (true, Home::Section(section, at)) = (symbol.function, symbol.home)
                    && let Some(list) = starts.get_mut(section)
                {
                    list.push(at);
                }
            }
            let mut firsts = vec![None; input.sections.len()];
            for (index, section) in input.sections.iter().enumerate() {
                if section.kind == Kind::None || !live[file][index] {
                    continue;
                }
                let first = graph.places.len();
                if section.kind == Kind::Text {
                    starts[index].sort_unstable();
                    for function in super::code::sweep(section, &starts[index]) {
                        graph.push((file, index), Some(function), None);
                    }
                } else {
                    let variable = matches!(section.kind, Kind::Data | Kind::Zero | Kind::Init | Kind::Fini);
                    graph.push((file, index), None, variable.then_some(Reason::Variable));
                }
                firsts[index] = Some((first, graph.places.len() - first));
            }
            graph.first.push(firsts);
        }
        graph
    }

    fn push(&mut self, place: (usize, usize), function: Option<Function>, private: Option<Reason>) {
        self.places.push(place);
        self.functions.push(function);
        self.private.push(private);
    }

    /// The node at a byte of a section; `None` if the section is not in memory.
    pub fn node(&self, file: usize, section: usize, at: u64) -> Option<Node> {
        let (first, count) = (*self.first.get(file)?.get(section)?)?;
        let functions = &self.functions[first..first + count];
        let before = functions.partition_point(|one| one.as_ref().is_some_and(|one| one.start <= at));
        Some(first + before.saturating_sub(1))
    }

    /// The nodes of a section.
    pub fn nodes(&self, file: usize, section: usize) -> core::ops::Range<Node> {
        let found = self.first.get(file).and_then(|one| one.get(section)).copied();
        let (first, count) = found.flatten().unwrap_or((0, 0));
        first..first + count
    }

    /// Finds what is private.
    pub fn spread(&mut self, inputs: &[Input], symbols: &Symbols) {
        let count = self.places.len();
        let mut users: Vec<Vec<Node>> = vec![Vec::new(); count];
        let mut work: Vec<Node> = (0..count).filter(|node| self.private[*node].is_some()).collect();
        for node in 0..count {
            let (file, section) = self.places[node];
            let mut named = Vec::new();
            let relocations = &inputs[file].sections[section].relocations;
            if let Some(function) = &self.functions[node] {
                for one in &function.uses {
                    named.push(match one.relocation {
                        None => Target::Place(file, section, one.target),
                        Some(index) => {
                            let relocation = &relocations[index];
                            let ahead = if one.form == Form::Data { 0 } else { one.next - one.at };
                            let addend = relocation.addend.wrapping_add_unsigned(ahead);
                            symbols.target(inputs, file, relocation.symbol, addend)
                        }
                    });
                }
            } else {
                // Distances (jump tables) are the same in every instance; only whole addresses count.
                let whole = relocations.iter().filter(|one| one.kind == object::elf::R_X86_64_64);
                named.extend(whole.map(|one| symbols.target(inputs, file, one.symbol, one.addend)));
            }
            if let Some(function) = &self.functions[node] {
                // Who has a personality routine is found by it through the data register.
                let own = inputs[file].frames.of(section).iter();
                let own = own.filter(|frame| (function.start..function.end).contains(&frame.start));
                named.extend(own.filter_map(|frame| frames::personality(inputs, symbols, file, frame)));
            }
            for target in named {
                match target {
                    Target::Import(..) | Target::Entry(..) | Target::Data(_) | Target::Instance
                        if self.private[node].is_none() =>
                    {
                        self.private[node] = Some(Reason::Import);
                        work.push(node);
                    }
                    // Who has the entry of a function that needs the data gives its own data with it.
                    Target::Place(file, section, at) | Target::OwnEntry(file, section, at) => {
                        if let Some(target) = self.node(file, section, at)
                            && target != node
                        {
                            users[target].push(node);
                        }
                    }
                    _ => {}
                }
            }
        }
        // A linker set is in one place: one private section makes all of it private.
        for set in symbols.sets() {
            let nodes: Vec<Node> = set
                .iter()
                .filter_map(|&(file, section)| self.node(file, section, 0))
                .collect();
            for (index, &node) in nodes.iter().enumerate() {
                users[node].push(nodes[(index + 1) % nodes.len()]);
            }
        }
        while let Some(node) = work.pop() {
            for &user in &users[node] {
                if self.private[user].is_none() {
                    self.private[user] = Some(Reason::Names(node));
                    work.push(user);
                }
            }
        }
    }

    /// The name of the function or section at a node, for messages.
    pub fn name(&self, inputs: &[Input], node: Node) -> String {
        let (file, section) = self.places[node];
        let input = &inputs[file];
        let start = self.functions[node].as_ref().map(|function| function.start);
        let symbol = input
            .symbols
            .iter()
            .find(|one| !one.name.is_empty() && Some(one.home) == start.map(|at| Home::Section(section, at)));
        symbol.map_or_else(|| input.sections[section].name.clone(), |one| one.name.clone())
    }

    /// What makes a node private in the end: the name of the variable's section, or "an import".
    pub fn cause(&self, inputs: &[Input], node: Node) -> String {
        let mut at = node;
        for _ in 0..self.places.len() {
            match self.private[at] {
                Some(Reason::Names(next)) => at = next,
                Some(Reason::Import) => return String::from("an import"),
                _ => break,
            }
        }
        self.name(inputs, at)
    }
}
