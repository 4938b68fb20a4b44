//! When the server looks at its clock and its disk, and does a piece of the long work that waits for nothing (decision 0165).
//!
//! A thread woken at the moment at which a look is due goes first, and the look comes half a pause later: one that sleeps for a pause each time
//! would else find the look before it every second time. A look that has waited for long comes as soon as that thread waits, never
//! before it: the piece that kept the thread from being woken in time, and the look's, would be one wait. But it does not wait for ever.

/// How often the server looks at its checkpoint clock, in nanoseconds.
const CLOCK_NS: u64 = 100_000_000;
/// The time from one look to the next, at least, while threads run and there is work left for it: the store's, mostly.
const PAUSE_NS: u64 = 50_000;
/// How long a look that is due may be put off, until it goes before all threads but those that were woken already; and how much longer for these.
const PUT_OFF_NS: u64 = 4 * PAUSE_NS;

/// The answer to whether the server looks now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The server looks.
    Look,
    /// A thread goes first. This is asked again at that time, in nanoseconds.
    PutOff(u64),
    /// None is due.
    NotDue,
}

/// The threads that a look which is due finds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Threads {
    /// One is ready that is more urgent than the one that runs, or than the one that is to do its call again.
    Woken,
    /// One has just begun to run.
    Begun,
    /// One has run for some time, or there is none.
    Settled,
}

/// A look that has been put off for long.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Owed {
    Nothing,
    /// Once the thread that was woken waits.
    Later,
    Now,
}

/// When the next look is due.
#[derive(Debug)]
pub struct Looks {
    last_ns: u64,
    clock_ns: u64,
    /// Until when a look that is due may be put off; 0 if none is due.
    put_off_until: u64,
    owed: Owed,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            last_ns: 0,
            clock_ns: 0,
            put_off_until: 0,
            owed: Owed::Nothing,
        }
    }
}

impl Looks {
    /// The server looks now.
    pub const fn begin(&mut self, now_ns: u64) {
        (self.last_ns, self.clock_ns) = (now_ns, now_ns + CLOCK_NS);
        self.settle();
    }

    const fn settle(&mut self) {
        (self.put_off_until, self.owed) = (0, Owed::Nothing);
    }

    /// When the next piece of work is due, if there is any.
    pub const fn piece_ns(&self) -> u64 {
        self.last_ns + PAUSE_NS
    }

    /// When the next look at the clock is due.
    pub const fn clock_ns(&self) -> u64 {
        self.clock_ns
    }

    /// Whether the server is to look now. `wanted`: there is work for it.
    pub const fn ask(&mut self, now_ns: u64, wanted: bool, threads: Threads) -> Verdict {
        if now_ns < self.clock_ns && !(wanted && now_ns >= self.piece_ns()) {
            self.settle();
            return Verdict::NotDue;
        }
        if self.put_off_until == 0 {
            self.put_off_until = now_ns + PUT_OFF_NS;
        }
        let waited_long = now_ns >= self.put_off_until;
        match threads {
            // Once the woken thread waits, the look comes before whoever is ready then: two threads that wake each other would else keep it out for ever.
            // One that gives the processor up and is ready again never waits, and may be the one found each time: so there is an end to this, too.
            Threads::Woken if !matches!(self.owed, Owed::Now) && now_ns < self.put_off_until + PUT_OFF_NS => {
                if waited_long {
                    self.owed = Owed::Later;
                }
            }
            Threads::Begun if !waited_long => {}
            _ => return Verdict::Look,
        }
        Verdict::PutOff(now_ns + PAUSE_NS / 2)
    }

    /// The thread that ran begins to wait.
    #[inline(always)]
    pub fn thread_waits(&mut self) {
        if self.owed == Owed::Later {
            self.owed = Owed::Now;
        }
    }

    /// Whether no other thread may run before the look.
    #[inline(always)]
    pub fn is_next(&self) -> bool {
        self.owed == Owed::Now
    }

    /// Whether the next thread that waits must be told here.
    #[inline(always)]
    pub fn is_owed(&self) -> bool {
        self.owed != Owed::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look was due for so long that it is owed, and a thread was woken just now.
    fn overdue() -> (Looks, u64) {
        let mut looks = Looks::default();
        looks.begin(1);
        let mut now_ns = looks.piece_ns();
        let until = now_ns + PUT_OFF_NS;
        while let Verdict::PutOff(at) = looks.ask(now_ns, true, Threads::Woken) {
            assert!(!looks.is_owed() || now_ns >= until);
            if looks.is_owed() {
                return (looks, now_ns);
            }
            now_ns = at;
        }
        panic!("the look came before a thread that was woken");
    }

    #[test]
    fn nothing_is_due_without_work_until_the_clock_is() {
        let mut looks = Looks::default();
        looks.begin(1);
        assert_eq!(looks.ask(looks.piece_ns(), false, Threads::Settled), Verdict::NotDue);
        assert_eq!(looks.ask(looks.piece_ns() - 1, true, Threads::Settled), Verdict::NotDue);
        assert_eq!(looks.ask(looks.piece_ns(), true, Threads::Settled), Verdict::Look);
        assert_eq!(looks.ask(looks.clock_ns(), false, Threads::Settled), Verdict::Look);
    }

    #[test]
    fn an_overdue_look_comes_when_the_woken_thread_waits_and_not_before() {
        let (mut looks, now_ns) = overdue();
        assert!(!looks.is_next());
        assert!(matches!(
            looks.ask(now_ns + 1, true, Threads::Woken),
            Verdict::PutOff(_)
        ));
        looks.thread_waits();
        assert!(looks.is_next());
        looks.begin(now_ns + 2);
        assert!(!looks.is_owed());
    }

    #[test]
    fn an_overdue_look_comes_behind_a_thread_that_goes_on_running() {
        let (mut looks, now_ns) = overdue();
        assert_eq!(looks.ask(now_ns + PAUSE_NS / 2, true, Threads::Begun), Verdict::Look);
    }

    /// Two threads that wake each other: one waits, and before the look a timer finds the other one ready.
    #[test]
    fn who_is_woken_behind_the_thread_that_went_first_does_not_go_before_the_look() {
        let (mut looks, now_ns) = overdue();
        looks.thread_waits();
        assert_eq!(looks.ask(now_ns + 1, true, Threads::Woken), Verdict::Look);
    }

    /// One that yields to nobody without rest is ready whenever this is asked, and never waits.
    #[test]
    fn a_look_is_not_put_off_for_ever_by_one_that_never_waits() {
        let (mut looks, mut now_ns) = overdue();
        let until = now_ns + 2 * PUT_OFF_NS;
        while let Verdict::PutOff(at) = looks.ask(now_ns, true, Threads::Woken) {
            assert!(now_ns < until);
            now_ns = at;
        }
    }
}
