//! The place of a thread's state of the vector unit (x87, SSE, AVX).

/// The place of the state. A number and no enum: the fast paths in assembly look at it together with [`Thread::slow`], and make
/// [`Self::INITIAL`] of any but [`Self::UNUSED`] by one instruction.
///
/// [`Thread::slow`]: super::Thread::slow
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct VectorState(u32);

impl VectorState {
    /// The thread has never used the unit, which is off while it runs.
    pub const UNUSED: Self = Self(0);
    /// The thread uses the unit; its state is the initial one, and stands nowhere.
    pub const INITIAL: Self = Self(1);
    /// It stands in memory.
    pub const SAVED: Self = Self(3);
    /// The first of those in a unit.
    pub const LOADED: u32 = 5;
    /// The distance from one processor to the next.
    pub const LOADED_STEP: u32 = 4;
    /// The bits of the state of a thread that loses it: [`Self::dropped`].
    pub const DROPPED: u32 = 1;

    /// Not zero if the thread uses the unit.
    #[inline(always)]
    pub(super) const fn bits(self) -> u32 {
        self.0
    }

    /// It is in the unit of a processor, and the thread can run nowhere else.
    #[inline(always)]
    pub const fn loaded(processor: u32) -> Self {
        Self(Self::LOADED + processor * Self::LOADED_STEP)
    }

    /// The processor in whose unit it is.
    #[inline(always)]
    pub const fn processor(self) -> Option<u32> {
        match self.0.checked_sub(Self::LOADED) {
            Some(above) => Some(above / Self::LOADED_STEP),
            None => None,
        }
    }

    /// The state after a message or a protected call, which keep none: the initial one, if the thread uses the unit.
    #[inline(always)]
    #[must_use]
    pub const fn dropped(self) -> Self {
        Self(self.0 & Self::DROPPED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_initial_unless_the_unit_was_never_used() {
        let used = [VectorState::INITIAL, VectorState::SAVED];
        for state in used.into_iter().chain((0..40).map(VectorState::loaded)) {
            assert_eq!(state.dropped(), VectorState::INITIAL);
        }
        assert_eq!(VectorState::UNUSED.dropped(), VectorState::UNUSED);
        assert!(used.iter().all(|state| state.processor().is_none()));
        assert!((0..40).all(|number| VectorState::loaded(number).processor() == Some(number)));
    }
}
