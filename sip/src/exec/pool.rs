//! Stacks, memories and tables of processes that have ended, for those to come: making a reservation and giving it
//! back is most of what a short-lived process costs. Memory that comes back reads as zero.

use super::host;
use super::memory::{Element, Memory, Reservation, Table};
use crate::compile::Bounds;
use crate::module::{Limits, TableType};
use alloc::{rc::Rc, vec::Vec};
use core::cell::RefCell;

/// Stacks that are kept at most, and memories, and tables.
const KEPT: usize = 64;
/// Elements of a table that is kept at most.
const ELEMENTS: u64 = 4096;

/// The memory that ended processes have left. Stores that are made with it share it, on one thread.
#[derive(Default)]
pub struct Pool {
    stacks: RefCell<Vec<Reservation>>,
    memories: RefCell<Vec<(Bounds, Memory)>>,
    tables: RefCell<Vec<Table>>,
}

impl Pool {
    /// An empty one.
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// A stack whose usable part reads as zero.
    pub(super) fn stack(&self) -> Option<Reservation> {
        self.stacks.borrow_mut().pop()
    }

    /// Takes a stack back; all of it but its lowest page is usable. `ran` says whether any code used it.
    pub(super) fn keep_stack(&self, stack: Reservation, ran: bool) {
        let mut stacks = self.stacks.borrow_mut();
        if stacks.len() >= KEPT || stack.bytes() <= 4096 {
            return;
        }
        // SAFETY: the usable part of the stack of a process that has ended; nothing refers to it.
        if !ran || unsafe { host::discard(stack.base().add(4096), stack.bytes() - 4096) } {
            stacks.push(stack);
        }
    }

    /// A memory of this type, all zero.
    pub(super) fn memory(&self, declared: Limits, bounds: Bounds) -> Option<Memory> {
        let mut memories = self.memories.borrow_mut();
        let fits = |(of, memory): &(Bounds, Memory)| *of == bounds && memory.is_like(declared);
        let at = memories.iter().position(fits)?;
        Some(memories.swap_remove(at).1)
    }

    /// Takes a memory back. `ran` says whether any code used it.
    pub(super) fn keep_memory(&self, bounds: Bounds, mut memory: Memory, ran: bool) {
        let mut memories = self.memories.borrow_mut();
        if memories.len() < KEPT && memory.has_not_grown() && memory.clear(ran) {
            memories.push((bounds, memory));
        }
    }

    /// A table of this type, all null.
    pub(super) fn table(&self, declared: &TableType) -> Option<Table> {
        let mut tables = self.tables.borrow_mut();
        let at = tables.iter().position(|table| table.declared == *declared)?;
        Some(tables.swap_remove(at))
    }

    /// Takes a table back.
    pub(super) fn keep_table(&self, mut table: Table) {
        let mut tables = self.tables.borrow_mut();
        let is_as_new = table.length == table.declared.limits.min && table.length <= ELEMENTS;
        if tables.len() < KEPT && is_as_new {
            table.elements_mut().fill(Element::NULL);
            tables.push(table);
        }
    }
}
