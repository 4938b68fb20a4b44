//! The exchange heap as processes see it: memory for the blocks, and the imports that are calls
//! (`alloc`, `free`; the accessors are inlined by the compiler). A block's bytes are zeroed when it is
//! made, so that nothing of its former owner is left in it.

use super::host::{self, Protection};
use super::{Extern, HostError, LinkError, Reservation, Store, Val};
use crate::exchange::{HandleTable, Owners, Process};
use crate::module::{FuncType, ValType};
use alloc::{boxed::Box, rc::Rc, string::ToString, sync::Arc};
use core::cell::RefCell;

/// The memory of an exchange heap and who owns what of it. Shared by all processes that exchange.
pub struct Exchange {
    owners: Owners,
    range: Reservation,
}

impl Exchange {
    /// A heap of so many bytes and blocks.
    ///
    /// # Errors
    /// No memory.
    pub fn new(bytes: usize, blocks: u32) -> Result<Arc<Self>, LinkError> {
        let range = Reservation::new(bytes).ok_or(LinkError::NoMemory)?;
        // SAFETY: the whole of a new reservation.
        if !unsafe { host::protect(range.base(), range.bytes(), Protection::ReadWrite) } {
            return Err(LinkError::NoMemory);
        }
        let owners = Owners::new(range.base() as u64, range.bytes() as u64, blocks);
        Ok(Arc::new(Self { owners, range }))
    }

    /// Who owns what.
    pub const fn owners(&self) -> &Owners {
        &self.owners
    }

    fn clear(&self, base: u64, bytes: u64) {
        let offset = (base - self.range.base() as u64) as usize;
        // SAFETY: the range is a block that the calling process has just become owner of, inside the
        // reservation; nobody else touches it.
        unsafe { core::ptr::write_bytes(self.range.base().add(offset), 0, bytes as usize) };
    }
}

/// A process's part in an exchange heap.
pub struct Blocks {
    heap: Arc<Exchange>,
    table: Rc<RefCell<HandleTable>>,
}

impl Store {
    /// Joins the process to an exchange heap; done before its modules are instantiated.
    pub fn join_exchange(&mut self, heap: &Arc<Exchange>, process: Process) -> Blocks {
        let table = Rc::new(RefCell::new(HandleTable::new(process)));
        // The entries are a box that neither the table nor the store moves; the store keeps the
        // table, and with it the heap, alive as long as itself.
        self.handle_table = table.borrow().entries() as u64;
        self.blocks = Some((heap.clone(), table.clone()));
        Blocks {
            heap: heap.clone(),
            table,
        }
    }
}

impl Blocks {
    /// The names of the process's blocks.
    pub fn table(&self) -> &Rc<RefCell<HandleTable>> {
        &self.table
    }

    /// The import of the exchange heap with this name; accessors are inlined and never called, but
    /// an import must be met, so they have a body that says so.
    pub fn import(&self, store: &mut Store, name: &str, ty: &FuncType) -> Option<Extern> {
        let (heap, table) = (self.heap.clone(), self.table.clone());
        let is = |params: &[ValType], results: &[ValType]| ty.params == params && ty.results == results;
        let failed = |error: crate::exchange::ExchangeError| HostError::Failed(error.message().to_string());
        let body: super::HostFn = match name {
            "alloc" if is(&[ValType::I32], &[ValType::I32]) => Box::new(move |_, args, results| {
                let Val::I32(bytes) = args[0] else { return Ok(()) };
                let mut table = table.borrow_mut();
                let handle = table
                    .alloc(&heap.owners, u64::from(bytes.cast_unsigned()))
                    .map_err(failed)?;
                let block = table.block(handle).map_err(failed)?;
                heap.clear(heap.owners.base(block), heap.owners.length(block));
                results[0] = Val::I32(handle.cast_signed());
                Ok(())
            }),
            "free" if is(&[ValType::I32], &[]) => Box::new(move |_, args, _| {
                let Val::I32(handle) = args[0] else { return Ok(()) };
                table
                    .borrow_mut()
                    .free(&heap.owners, handle.cast_unsigned())
                    .map_err(failed)
            }),
            _ if crate::module::ACCESSORS
                .iter()
                .any(|(known, params, results)| *known == name && is(params, results)) =>
            {
                Box::new(|_, _, _| Err(HostError::Failed("accessors are inlined, not called".to_string())))
            }
            _ => return None,
        };
        Some(store.host_function(ty.clone(), body))
    }
}
