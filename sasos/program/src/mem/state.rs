//! The one state, which every event gets and none keeps.

use core::cell::UnsafeCell;

use crate::State;

struct Place(UnsafeCell<Option<State>>);

// SAFETY: the server runs on one processor at a time, for one event at a time.
unsafe impl Sync for Place {}

static PLACE: Place = Place(UnsafeCell::new(None));

/// Puts the state in, before the first event.
pub fn fill(state: State) {
    // SAFETY: no event has come yet, so nobody has a reference to it.
    unsafe { *PLACE.0.get() = Some(state) };
}

/// The state.
///
/// # Safety
/// No other reference to it lives.
#[inline(always)]
pub unsafe fn get() -> &'static mut State {
    // SAFETY: the caller vouches for it.
    let place = unsafe { &mut *PLACE.0.get() };
    match place {
        Some(state) => state,
        None => unreachable!("an event before the server was ready"),
    }
}
