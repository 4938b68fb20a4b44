//! How what the linker makes itself is left: thunks, stubs.

use super::super::fault::Fault;
use super::super::frames::Made;
use super::super::relocate;
use super::super::thunk::{self, Copied};
use super::Writer;
use alloc::vec::Vec;

impl Writer<'_> {
    /// The numbers of the thunks in the order in which they lie: those without words first.
    pub(super) fn thunk_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.words.len()).collect();
        order.sort_by_key(|number| self.words[*number] != Copied::NONE);
        order
    }

    pub(super) fn thunk_entries(&self, order: &[usize]) -> Vec<u8> {
        let words: Vec<Copied> = order.iter().map(|number| self.words[*number]).collect();
        thunk::entries(&words, self.thunk_entries_at)
    }

    /// Part 14, to lie at byte `at` of the object.
    pub(super) fn unwinding(&self, at: u32) -> Result<Vec<u8>, Fault> {
        let plain = |place| Made {
            place,
            rules: Vec::new(),
        };
        let stubs_end = self.stubs_at + relocate::stub_bytes(&self.plan) as u32;
        let common_end = self.lazy_common + thunk::lazy_common().len() as u32;
        let mut made = Vec::from([Made {
            place: self.lazy_common..common_end,
            rules: thunk::keeping_rules(),
        }]);
        if relocate::stub_bytes(&self.plan) > 0 {
            made.push(plain(self.stubs_at..stubs_end));
        }
        let late = |(module, _): &&(u32, u32)| !self.plan.early.contains(module);
        let late = self.plan.used.iter().filter(late).count();
        if late > 0 {
            made.push(plain(common_end..common_end + (late * thunk::ALIGN) as u32));
        }
        self.frames
            .part(&self.world, &self.layout, at, &made, self.thunk_entries_at)
    }
}
