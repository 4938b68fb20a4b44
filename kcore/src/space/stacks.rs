//! The stacks of a callee space, which protected calls take and put back.

use core::mem::offset_of;

use super::Space;

/// Stacks that a callee space may have.
pub const STACKS_MAX: usize = 32;

/// Calls that may be inside of a callee, whosever they are. For those beyond them the server decides (decision 0104).
pub const STACKS_OPEN: usize = 16;

/// The rest.
pub const STACKS_KEPT: usize = STACKS_MAX - STACKS_OPEN;

impl Space {
    /// Offset of the tops of the stacks that the fast path takes.
    pub const STACKS: usize = offset_of!(Self, stacks) + STACKS_KEPT * size_of::<u64>();
    /// Offset of how many of them there are now, with a sign.
    pub const OPEN: usize = offset_of!(Self, open);

    /// Offset of whether threads may be waiting for a stack.
    pub const STACKS_WANTED: usize = offset_of!(Self, stacks_wanted);

    /// Not zero while threads may be waiting for a stack.
    #[inline(always)]
    pub fn stacks_wanted(&self) -> u32 {
        self.stacks_wanted
    }

    /// A thread waits for a stack: returns take the slow path.
    pub(crate) fn want_stack(&mut self) {
        self.stacks_wanted = 1;
    }

    /// Free stacks.
    fn free(&self) -> usize {
        let kept = (self.stack_count as usize).saturating_sub(STACKS_OPEN);
        kept.saturating_add_signed(self.open as isize)
    }

    /// Whether there is a stack that all may take.
    pub fn has_open_stack(&self) -> bool {
        self.open > 0
    }

    fn place(&mut self, at: i32) -> Option<&mut u64> {
        self.stacks.get_mut(STACKS_KEPT.saturating_add_signed(at as isize))
    }

    /// Takes a free stack, while no more calls are inside than are free to all.
    #[inline(always)]
    pub(crate) fn take_stack(&mut self) -> Option<u64> {
        let at = self.open - 1;
        if at < 0 {
            return None;
        }
        let top = *self.place(at)?;
        self.open = at;
        Some(top)
    }

    /// Takes a free stack, however many calls are inside.
    pub(crate) fn take_any_stack(&mut self) -> Option<u64> {
        if self.free() == 0 {
            return None;
        }
        let at = self.open - 1;
        let top = *self.place(at)?;
        self.open = at;
        Some(top)
    }

    /// Puts a stack back, if all may take it then; else the slow path does ([`Space::give_stack`]).
    #[inline(always)]
    pub(crate) fn put_stack(&mut self, top: u64) -> Option<()> {
        if self.open.cast_unsigned() >= STACKS_OPEN as u32 {
            return None;
        }
        let at = self.open;
        *self.place(at)? = top;
        self.open = at + 1;
        Some(())
    }

    /// Puts a stack back; callers that wait for one are to be woken now.
    pub(crate) fn give_stack(&mut self, top: u64) {
        let at = self.open;
        if let Some(place) = self.place(at) {
            *place = top;
            self.open = at + 1;
        }
        self.stacks_wanted = 0;
    }

    /// One stack more; callers that wait for one are to be woken now. Beyond [`STACKS_MAX`] it is not remembered.
    pub(crate) fn add_stack(&mut self, top: u64) {
        self.stacks_wanted = 0;
        let made = self.stack_count as usize;
        if made < STACKS_OPEN {
            self.give_stack(top);
        } else if let Some(place) = STACKS_KEPT
            .checked_sub(made - STACKS_OPEN + 1)
            .and_then(|at| self.stacks.get_mut(at))
        {
            // Below the others that are free.
            *place = top;
        } else {
            return;
        }
        self.stack_count += 1;
    }

    /// Tops of the stacks that callee threads may take.
    pub fn free_stacks(&self) -> &[u64] {
        let end = STACKS_KEPT.saturating_add_signed(self.open as isize);
        &self.stacks[end - self.free()..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::space;

    #[test]
    fn the_fast_path_enters_while_fewer_are_inside_than_are_free_to_all() {
        let mut space = space(0);
        let (mut free, mut inside, mut made) = (Vec::new(), Vec::new(), 0);
        let mut random = 7u64;
        for _ in 0..100_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            match random >> 61 {
                0 if made < STACKS_MAX => {
                    made += 1;
                    space.add_stack(made as u64);
                    free.push(made as u64);
                }
                1..=3 => {
                    let all = random >> 60 & 1 != 0;
                    let taken = if all {
                        space.take_any_stack()
                    } else {
                        space.take_stack()
                    };
                    let may = !free.is_empty() && (all || inside.len() < STACKS_OPEN);
                    assert_eq!(taken.is_some(), may, "{} inside, {} free", inside.len(), free.len());
                    if let Some(top) = taken {
                        free.remove(free.iter().position(|&other| other == top).expect("it was free"));
                        inside.push(top);
                    }
                }
                _ => {
                    let Some(top) = inside.pop() else { continue };
                    let is_fast = space.put_stack(top).is_some();
                    assert_eq!(
                        is_fast,
                        inside.len() < STACKS_OPEN,
                        "a return from among {}",
                        inside.len() + 1
                    );
                    if !is_fast {
                        space.give_stack(top);
                    }
                    free.push(top);
                }
            }
            let mut shown = space.free_stacks().to_vec();
            shown.sort_unstable();
            free.sort_unstable();
            assert_eq!(shown, free);
        }
    }
}
