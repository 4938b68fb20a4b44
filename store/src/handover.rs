//! Dirty pages on their way to a checkpoint and back: what was promised to them goes with them as a loan.

use crate::event::{DirtyPage, Failure};
use crate::heap::NoHeap;
use crate::space::Loan;
use crate::store::Store;

impl Store {
    /// Hands a dirty page over for the checkpoint that begins next. Many can be handed over in pieces: what is written is
    /// what the frames hold when the checkpoint begins, so until then only the caller must see to it that the
    /// pages belong to one moment.
    ///
    /// # Errors
    /// [`Failure::Memory`] if there is no heap for its place in the list, or for its promise to come back; it was not taken.
    pub fn freeze_page(&mut self, page: DirtyPage) -> Result<(), Failure> {
        self.collected.push(page).map_err(|_| Failure::Memory)?;
        let mut loan = self.collected_share;
        if self.lend(&mut loan, &page).is_err() {
            self.collected.pop();
            return Err(Failure::Memory);
        }
        self.budget += loan.blocks() - self.collected_share.blocks();
        self.collected_share = loan;
        Ok(())
    }

    /// Hands the promise of a dirty page over to a job.
    pub(crate) fn lend(&mut self, loan: &mut Loan, page: &DirtyPage) -> Result<(), NoHeap> {
        if self.promises.lend_beside(loan, page.base, page.page) {
            return Ok(());
        }
        let (_, levels) = self.shape(page.base, 0);
        self.promises.lend(loan, page.base, page.page, levels)
    }

    /// Gives up the checkpoint for which pages were handed over and that was not begun: they come back by [`Store::page_over`].
    pub fn freeze_cancel(&mut self) {
        debug_assert!(
            self.over_share.is_none(),
            "pages of the checkpoint before have come back"
        );
        let loan = core::mem::take(&mut self.collected_share);
        self.over = core::mem::take(&mut self.collected);
        self.returned = self.over.len();
        self.over_share = Some((loan, loan.blocks()));
    }

    /// A page that was not written is promised its room again, unless it is gone meanwhile.
    pub(crate) fn promise_again(&mut self, page: &DirtyPage) {
        let (pages, levels) = self.shape(page.base, 0);
        if page.page < pages {
            self.promises.add_again(page.base, page.page, levels);
        }
    }

    /// Takes a page of the last checkpoint that is over. To be called after its event, until there is none. If the checkpoint has failed,
    /// the page is promised its room again, as the one that asks for it takes it back.
    pub fn page_over(&mut self) -> Option<DirtyPage> {
        let page = self.over.pop();
        let Some((loan, share)) = self.over_share else {
            return page;
        };
        let before = self.promises.total();
        if let Some(page) = &page {
            self.promise_again(page);
        }
        let left = share.saturating_sub(self.promises.total() - before);
        self.over_share = Some((loan, left));
        self.budget = self.budget.saturating_sub(share - left);
        if page.is_none() {
            self.over_share = None;
            self.budget = self.budget.saturating_sub(left);
            self.promises.settle(loan);
            self.promises.trim();
        }
        page
    }
}
