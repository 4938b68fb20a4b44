//! Turns, requests and hand-overs between processors under every interleaving (loom): the kernel's own source file, over
//! loom's atomics in place of the machine's.

mod atomic {
    pub use loom::{
        hint::spin_loop,
        sync::atomic::{AtomicU32, AtomicU64, Ordering},
    };
}

/// Small, so that few steps lead to each case.
const PATIENCE: u32 = 1;
const ABSENCE: u32 = 1;

#[path = "../src/smp/protocol.rs"]
#[allow(dead_code, reason = "the whole file, of which each test uses a part")]
mod protocol;

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
};
use protocol::{FORGET, FORGET_PAGE, LEAVE_ROOT, Mailbox, Mark, STOP, Turn, WAKE, WORDS};

impl Turn {
    fn free() -> Self {
        Self {
            word: AtomicU32::new(0),
        }
    }
}

impl Mailbox {
    fn empty() -> Self {
        Self {
            requests: AtomicU32::new(0),
            address: AtomicU64::new(0),
            handed: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// All interleavings in which threads are interrupted up to three times where they need not be. Loops that wait make
/// the rest endless.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// The state behind the kernel lock.
struct Kernel {
    turn: Turn,
    mailboxes: [Mailbox; 2],
    /// Loom reports every access that is not ordered behind the one before.
    inside: UnsafeCell<Inside>,
    /// A page-table entry: written by the holder, read by walkers at any time.
    entry: AtomicU64,
    /// Whether the callee's root was given back: a processor that has it loaded walks what is somebody else's.
    root_freed: AtomicU32,
}

#[derive(Default)]
struct Inside {
    /// The processor that was inside last.
    here: u32,
    entered: u32,
    /// The processor that runs the one thread, or nobody.
    runs_on: u32,
    /// The thread's registers, as far as they are in memory.
    context: u64,
    /// Whether the callee's root is noted down as loaded on processor 1.
    on_callee: bool,
}

const NOBODY: u32 = 2;

// SAFETY: loom checks the accesses to the cell.
unsafe impl Sync for Kernel {}
// SAFETY: as above.
unsafe impl Send for Kernel {}

impl Kernel {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            turn: Turn::free(),
            mailboxes: [Mailbox::empty(), Mailbox::empty()],
            inside: UnsafeCell::new(Inside {
                runs_on: NOBODY,
                ..Inside::default()
            }),
            entry: AtomicU64::new(1),
            root_freed: AtomicU32::new(0),
        })
    }

    /// Enters, serving meanwhile; gives up if stopped and `gives_up`.
    fn enter(&self, me: u32, gives_up: bool, serve: &mut impl FnMut() -> u32) -> bool {
        let mark = Mark::of(me);
        if self.turn.try_again(mark) {
            self.with(|inside| assert_eq!(inside.here, me, "the last one in was this one"));
            return true;
        }
        match self.turn.take(mark, || serve() & STOP == 0 || !gives_up) {
            Some(changed) => {
                self.with(|inside| {
                    assert_eq!(changed, inside.here != me);
                    inside.here = me;
                });
                true
            }
            None => false,
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Inside) -> R) -> R {
        self.inside.with_mut(|inside| {
            // SAFETY: by whoever has the turn; loom would report another access at the same time.
            act(unsafe { &mut *inside })
        })
    }
}

#[test]
fn one_at_a_time_and_the_last_one_is_known() {
    explore(|| {
        let kernel = Kernel::new();
        let work = |kernel: &Kernel, me: u32| {
            for _ in 0..2 {
                assert!(kernel.enter(me, false, &mut || 0));
                kernel.with(|inside| inside.entered += 1);
                kernel.turn.leave();
            }
        };
        let other = kernel.clone();
        let thread = thread::spawn(move || work(&other, 1));
        work(&kernel, 0);
        thread.join().expect("no panic");
        let word = kernel.turn.word.load(Relaxed);
        assert!(
            word == Mark::of(0).0 || word == Mark::of(1).0,
            "it is free, and nobody is in line"
        );
        assert!(kernel.enter(0, false, &mut || 0));
        assert_eq!(kernel.with(|inside| inside.entered), 4);
    });
}

/// Processor 0 takes a page away and asks; processor 1 reads through what it remembers, and wants to enter the kernel
/// itself. After the answer nobody uses the old entry, and nobody waits for ever.
#[test]
fn after_the_answer_the_old_translation_is_gone() {
    explore(|| {
        let kernel = Kernel::new();
        let gone = Arc::new(AtomicU32::new(0));
        let over = Arc::new(AtomicU32::new(0));
        let (other, seen, end) = (kernel.clone(), gone.clone(), over.clone());
        let thread = thread::spawn(move || {
            // The entry as the processor remembers it. It is walked anew when nothing is remembered.
            let remembered = core::cell::Cell::new(Some(other.entry.load(Relaxed)));
            let mut serve = || {
                other.mailboxes[1].serve(|requests, address| {
                    assert!(requests == FORGET_PAGE && address == 0x1000);
                    remembered.set(None);
                })
            };
            // User code: an access at any time.
            let access = || {
                let freed = seen.load(Relaxed);
                let used = remembered.get().unwrap_or_else(|| other.entry.load(Relaxed));
                assert!(used == 0 || freed == 0, "the old frame is used after it was given back");
            };
            access();
            // A system call, at the same time as the other's: it answers while it waits.
            assert!(other.enter(1, false, &mut serve));
            other.turn.leave();
            access();
            // Else the interrupt that goes with the request finds it in user code.
            while end.load(Acquire) == 0 {
                serve();
                thread::yield_now();
            }
            access();
            assert!(remembered.get().is_none());
        });
        assert!(kernel.enter(0, false, &mut || 0));
        kernel.entry.store(0, Relaxed);
        kernel.mailboxes[1].post(FORGET_PAGE, 0x1000);
        while !kernel.mailboxes[1].is_done(FORGET_PAGE) {
            thread::yield_now();
        }
        // The frame goes back and is somebody else's.
        gone.store(1, Relaxed);
        kernel.turn.leave();
        over.store(1, Release);
        thread.join().expect("no panic");
    });
}

/// Processor 1 is on a callee's root, its thread comes back from there and ends, and it gives its turn up with work left. Processor 0
/// destroys the callee: it asks whoever is noted down as being there. No root is walked after it was freed.
#[test]
fn a_root_is_freed_when_nobody_has_it_loaded() {
    explore(|| {
        let kernel = Kernel::new();
        kernel.with(|inside| inside.on_callee = true);
        let over = Arc::new(AtomicU32::new(0));
        let (other, end) = (kernel.clone(), over.clone());
        let thread = thread::spawn(move || {
            let loaded = core::cell::Cell::new(true);
            let mut serve = || {
                other.mailboxes[1].serve(|requests, _| {
                    assert_eq!(requests, LEAVE_ROOT);
                    loaded.set(false);
                })
            };
            // The kernel runs on that root, too: any instruction walks it.
            let walk = || {
                assert!(
                    !loaded.get() || other.root_freed.load(Relaxed) == 0,
                    "a freed root is walked"
                );
            };
            walk();
            assert!(other.enter(1, false, &mut serve));
            walk();
            // The thread leaves the callee and ends: the root that is loaded stays loaded, and noted down.
            other.with(|inside| assert_eq!(inside.on_callee, loaded.get()));
            other.turn.leave();
            walk();
            while end.load(Acquire) == 0 {
                serve();
                walk();
                thread::yield_now();
            }
            walk();
        });
        assert!(kernel.enter(0, false, &mut || 0));
        if kernel.with(|inside| core::mem::take(&mut inside.on_callee)) {
            kernel.mailboxes[1].post(LEAVE_ROOT, 0);
            while !kernel.mailboxes[1].is_done(LEAVE_ROOT) {
                thread::yield_now();
            }
        }
        kernel.root_freed.store(1, Relaxed);
        kernel.turn.leave();
        over.store(1, Release);
        thread.join().expect("no panic");
    });
}

/// Processor 0 ends the thread that processor 1 runs, while that one makes a system call: either the call is done before, or it
/// is handed over whole, and the registers are in memory before they are touched. Afterwards it runs nowhere.
#[test]
fn a_running_thread_is_handed_over_with_its_call() {
    explore(|| {
        let kernel = Kernel::new();
        kernel.with(|inside| {
            inside.runs_on = 1;
            inside.here = 0;
        });
        let other = kernel.clone();
        let thread = thread::spawn(move || {
            let mut serve = || other.mailboxes[1].serve(|_, _| {});
            if other.enter(1, true, &mut serve) {
                other.with(|inside| {
                    assert_eq!(inside.runs_on, 1, "it was not stopped");
                    inside.context = 7;
                });
                other.turn.leave();
                // Back in user code the interrupt finds it.
                while serve() & STOP == 0 {
                    thread::yield_now();
                }
                other.mailboxes[1].hand_over(None);
            } else {
                other.mailboxes[1].hand_over(Some([5; WORDS]));
            }
            // A stopped processor finds out when it is its turn again.
            assert!(other.enter(1, false, &mut serve));
            other.with(|inside| assert_eq!((inside.runs_on, inside.context), (NOBODY, 9)));
            other.turn.leave();
        });
        assert!(kernel.enter(0, false, &mut || 0));
        kernel.mailboxes[1].post(STOP, 0);
        while !kernel.mailboxes[1].is_done(STOP) {
            thread::yield_now();
        }
        let call = kernel.mailboxes[1].take_call();
        kernel.with(|inside| {
            // Done and not handed over, or handed over and not done.
            assert_eq!(inside.context, if call.is_some() { 0 } else { 7 });
            assert!(call.is_none_or(|words| words == [5; WORDS]));
            inside.runs_on = NOBODY;
            inside.context = 9;
        });
        kernel.turn.leave();
        thread.join().expect("no panic");
    });
}

/// A thread becomes ready while a processor goes to rest: it is taken by one of the two, and only by one; no wake-up is lost.
#[test]
fn a_wake_up_is_not_lost_and_one_takes_the_thread() {
    explore(|| {
        let kernel = Kernel::new();
        let other = kernel.clone();
        // Processor 1: looks for a thread, rests until there is news, looks again.
        let idle = thread::spawn(move || {
            loop {
                assert!(other.enter(1, false, &mut || 0));
                let took = other.with(|inside| match inside.runs_on {
                    NOBODY if inside.context != 0 => {
                        inside.runs_on = 1;
                        Some(true)
                    }
                    0 => Some(false),
                    _ => None,
                });
                other.turn.leave();
                if let Some(took) = took {
                    return took;
                }
                while !other.mailboxes[1].take_news() {
                    thread::yield_now();
                }
            }
        });
        // Processor 0 makes it ready and tells, then looks itself.
        assert!(kernel.enter(0, false, &mut || 0));
        kernel.with(|inside| inside.context = 1);
        kernel.mailboxes[1].post(WAKE, 0);
        kernel.turn.leave();
        assert!(kernel.enter(0, false, &mut || 0));
        let mine = kernel.with(|inside| {
            let free = inside.runs_on == NOBODY;
            if free {
                inside.runs_on = 0;
            }
            free
        });
        kernel.turn.leave();
        assert!(mine != idle.join().expect("no panic"));
    });
}

/// News that comes beside a request is not swallowed with it.
#[test]
fn news_survives_requests() {
    explore(|| {
        let mailbox = Arc::new(Mailbox::empty());
        let other = mailbox.clone();
        let thread = thread::spawn(move || {
            other.post(WAKE, 0);
            other.post(FORGET, 0);
        });
        let mut news = false;
        mailbox.serve(|_, _| {});
        news |= mailbox.take_news();
        thread.join().expect("no panic");
        mailbox.serve(|requests, _| assert_eq!(requests, FORGET));
        news |= mailbox.take_news();
        assert!(news && mailbox.is_done(FORGET | WAKE));
    });
}
