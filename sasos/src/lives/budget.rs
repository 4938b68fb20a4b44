//! The budget of an event, and the cost of a step of long work: decision 0164.

use store::Budget;

/// The cost of a step of long work, roughly: instructions of its own, and calls of the machine. Those are calls of functions with the server inside,
/// and are in the instructions then; outside each has a price of its own. Both are said of every step, so that none forgets its calls.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Cost {
    instructions: u64,
    calls: u64,
}

impl Cost {
    /// That of a step that makes no call of the machine, or few.
    #[inline]
    pub(crate) const fn own(instructions: u64) -> Self {
        Self { instructions, calls: 0 }
    }

    /// That of a step that makes so many.
    #[inline]
    pub(crate) const fn calling(instructions: u64, calls: u64) -> Self {
        Self { instructions, calls }
    }

    /// That of so many such steps.
    #[inline]
    pub(crate) const fn times(self, count: u64) -> Self {
        Self::calling(self.instructions * count, self.calls * count)
    }

    /// The instructions that it costs with the server outside of the kernel, where calls of the machine are dearest.
    pub(crate) const fn outside(self) -> u64 {
        self.instructions + self.calls * kcore::outside::Remote::<()>::CALL
    }

    /// That of this step and another one.
    #[inline]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self::calling(self.instructions + other.instructions, self.calls + other.calls)
    }
}

/// The budget of the event under way.
#[derive(Copy, Clone)]
pub(crate) struct Allowance {
    left: Budget,
    /// Instructions that a call of the machine costs beside what it does.
    call: u64,
    /// Whether [`Allowance::at_least_once`] was asked, and the event that asked has not ended for want of budget since.
    raised: bool,
}

impl Allowance {
    /// No bound, until the first event begins.
    pub(crate) const ALL: Self = Self {
        left: Budget::ALL,
        call: 0,
        raised: false,
    };

    /// Sets the price of a call of the machine.
    pub(crate) const fn set_price(&mut self, call: u64) {
        self.call = call;
    }

    /// An event begins, or the next part of one: it may spend so much.
    #[inline(always)]
    pub(crate) const fn begin(&mut self, left: Budget) {
        self.left = left;
    }

    /// The instructions that a step costs.
    #[inline]
    pub(crate) const fn price(&self, cost: Cost) -> u64 {
        cost.instructions + cost.calls * self.call
    }

    /// The part of the budget that the store takes from. The store makes at most one call of the machine for each frame.
    #[inline]
    pub(crate) const fn left_to_store(&mut self) -> &mut Budget {
        &mut self.left
    }

    /// [`Budget::left`].
    #[inline]
    pub(crate) const fn left(&self) -> u64 {
        self.left.left()
    }

    /// [`Budget::is_left`].
    #[inline]
    pub(crate) const fn is_left(&self) -> bool {
        self.left.is_left()
    }

    /// [`Budget::has`].
    #[inline]
    pub(crate) const fn has(&self, cost: Cost) -> bool {
        self.left.has(self.price(cost))
    }

    /// [`Budget::allows`].
    #[inline]
    pub(crate) const fn allows(&self, cost: Cost) -> bool {
        self.left.allows(self.price(cost))
    }

    /// [`Budget::at_least`].
    #[inline]
    pub(crate) fn at_least(&mut self, cost: Cost) {
        self.left.at_least(self.price(cost));
    }

    /// The event ends that has asked [`Allowance::at_least_once`], or may have. Not every beginning of an event says so: each call would pay for that.
    pub(crate) const fn raise_again(&mut self) {
        self.raised = false;
    }

    /// The same, the first time in an event. It is not done in the event behind one that asked and needed no further one; that ends, and the next one
    /// has it.
    pub(crate) fn at_least_once(&mut self, cost: Cost) {
        if !core::mem::replace(&mut self.raised, true) {
            self.at_least(cost);
        }
    }

    /// [`Budget::spend`].
    #[inline]
    pub(crate) fn spend(&mut self, cost: Cost) -> bool {
        self.left.spend(self.price(cost))
    }

    /// Nothing more may be begun in this event.
    pub(crate) fn use_up(&mut self) {
        self.left.spend(u64::MAX);
    }

    /// Takes the bound away; tells what was left.
    pub(crate) const fn lift(&mut self) -> Budget {
        core::mem::replace(&mut self.left, Budget::ALL)
    }
}
