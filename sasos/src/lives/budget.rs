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
    /// All that was ever charged, and what was left when the store was handed the rest: for the table of charges.
    #[cfg(debug_assertions)]
    charged: u64,
    #[cfg(debug_assertions)]
    lent: Option<u64>,
}

impl Allowance {
    /// No bound, until the first event begins.
    pub(crate) const ALL: Self = Self {
        left: Budget::ALL,
        call: 0,
        raised: false,
        #[cfg(debug_assertions)]
        charged: 0,
        #[cfg(debug_assertions)]
        lent: None,
    };

    /// Sets the price of a call of the machine.
    pub(crate) const fn set_price(&mut self, call: u64) {
        self.call = call;
    }

    /// An event begins, or the next part of one: it may spend so much.
    #[inline(always)]
    pub(crate) fn begin(&mut self, left: Budget) {
        self.count_lent();
        self.left = left;
    }

    /// Counts what the store has taken.
    #[inline(always)]
    fn count_lent(&mut self) {
        #[cfg(debug_assertions)]
        if let Some(before) = self.lent.take() {
            self.charged += before.saturating_sub(self.left.left());
        }
    }

    /// All that was ever charged.
    #[cfg(debug_assertions)]
    pub(crate) fn charged(&self) -> u64 {
        self.charged + self.lent.map_or(0, |before| before.saturating_sub(self.left.left()))
    }

    /// The instructions that a step costs.
    #[inline]
    pub(crate) const fn price(&self, cost: Cost) -> u64 {
        cost.instructions + cost.calls * self.call
    }

    /// The part of the budget that the store takes from. The store makes at most one call of the machine for each frame.
    #[inline]
    pub(crate) fn left_to_store(&mut self) -> &mut Budget {
        self.count_lent();
        #[cfg(debug_assertions)]
        {
            self.lent = Some(self.left.left());
        }
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
        self.count_lent();
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
        self.count_lent();
        let price = self.price(cost);
        #[cfg(debug_assertions)]
        {
            self.charged += price;
        }
        self.left.spend(price)
    }

    /// Leaves no more than a cost for what is done now; tells what [`Allowance::widen`] is to give back.
    pub(crate) fn narrow(&mut self, cost: Cost) -> u64 {
        self.count_lent();
        let rest = self.left().saturating_sub(self.price(cost));
        self.left.spend(rest);
        rest
    }

    /// See [`Allowance::narrow`].
    pub(crate) fn widen(&mut self, rest: u64) {
        self.count_lent();
        self.left.at_least(self.left() + rest);
    }

    /// Nothing more may be begun in this event.
    pub(crate) fn use_up(&mut self) {
        self.count_lent();
        self.left.spend(u64::MAX);
    }

    /// Takes the bound away; tells what was left.
    pub(crate) fn lift(&mut self) -> Budget {
        self.count_lent();
        core::mem::replace(&mut self.left, Budget::ALL)
    }
}
