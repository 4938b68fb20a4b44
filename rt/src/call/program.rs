//! Programs that are modules, as the runtime's module begins them (decision 0066): from the first instruction on their
//! start page to their `main`, their threads, and the end of a thread that has no state.

#[cfg(feature = "module")]
pub(super) use begin::{ThreadStart, thread_entry};

/// Says that the calling thread cannot use the runtime, and ends it; a protected call ends by a fault instead.
#[cold]
#[inline(never)]
pub(crate) fn stateless() -> ! {
    crate::println!(
        "rt: this thread has no state of the runtime: start it with rt_thread_start, or call rt_attach on it first"
    );
    if super::thread_info(0).is_ok_and(|report| report.depth > 0) {
        crt0::fault();
    }
    super::entry::exit(super::foreign::STATUS_UNBOUND)
}

#[cfg(feature = "module")]
mod begin {
    use alloc::{boxed::Box, vec::Vec};

    use abi::start::{MODULE_START_EAGER, MODULE_START_MAGIC, MODULE_START_OFFSET, ModuleStart, START_MAGIC, Start};

    use crate::{
        Object, arguments,
        call::{
            arch::entered,
            entry::{STATUS_BAD_START, exit},
        },
        module::{Binding, Error, call_at},
        object::{instance::ARENA_BYTES, state},
    };

    entered! {
        /// The entry of every program that is a module: the kernel comes here over the jump on the start page, with the
        /// address of that page.
        #[unsafe(no_mangle)]
        pub rt_start, begin
    }

    /// Makes the program's state and the instance of its module, and calls `main` with its arguments.
    extern "C" fn begin(page: u64) -> ! {
        // SAFETY: the kernel passes on the word that the creator gave. If that is no start page, reading it faults, or
        // the magic is not there.
        let (head, start) = unsafe {
            let start = (page + MODULE_START_OFFSET) as *const ModuleStart;
            ((page as *const Start).read(), start.read())
        };
        if head.magic != START_MAGIC || start.magic != MODULE_START_MAGIC {
            crate::println!("rt: the start page is not one that this version knows: install the newest rt");
            exit(STATUS_BAD_START);
        }
        let binding = if start.flags & MODULE_START_EAGER == 0 {
            Binding::Lazy
        } else {
            Binding::Eager
        };
        // SAFETY: the creator made the object for this and wrote its first page only; the thread has just begun, and
        // `entered!` left the topmost words of its stack free.
        let attached = unsafe {
            let shelf = Object::told(start.shelf, start.shelf_bytes);
            state::attach(state::make((page, page + ARENA_BYTES), &head, binding, shelf, false))
        };
        if attached.is_err() {
            exit(STATUS_BAD_START);
        }
        match run(&start) {
            Ok(status) => exit(status),
            Err(error) => {
                crate::println!("{}: {error}", arguments::program());
                exit(STATUS_BAD_START)
            }
        }
    }

    /// The status with which `main` returns, after the C library has ended, if there is one.
    fn run(start: &ModuleStart) -> Result<u64, Error> {
        let modules = &state::state().modules;
        let instance = modules.sealed(start.module, start.module_bytes)?;
        let main = modules.symbol(instance, "main").ok_or_else(|| Error::NoExport {
            module: modules.name(instance),
            symbol: "main".into(),
        })?;
        // Arguments stand on the start page as C wants them: each ended by a zero byte.
        let mut places: Vec<u64> = arguments::all().map(|argument| argument.as_ptr() as u64).collect();
        let count = places.len() as u64;
        places.push(0);
        let places = Vec::leak(places).as_ptr() as u64;
        // The result of `main` is an int, in the lower half.
        // SAFETY: the program's `main`, with what C gives to it.
        let status = u64::from(unsafe { call_at(main, [count, places, 0, 0]) } as u32);
        // The C library calls what was left for it with `atexit`, ends all instances, and writes what is left in its streams.
        if let Some(library) = modules.known("libc")
            && let Some(end) = modules.symbol(library, "exit")
        {
            // SAFETY: C's `exit`, which takes a status.
            unsafe { call_at(end, [status, 0, 0, 0]) };
        }
        modules.end();
        Ok(status)
    }

    /// The work of a new thread.
    pub(crate) struct ThreadStart {
        /// A C function of one word that returns the status.
        pub(crate) run: u64,
        /// The word.
        pub(crate) with: u64,
        /// The state that it finds.
        pub(crate) state: u64,
    }

    entered! {
        /// The first function of a thread that the program starts; its word is the address of a boxed [`ThreadStart`].
        pub(crate) thread_entry, begin_thread
    }

    extern "C" fn begin_thread(word: u64) -> ! {
        // SAFETY: the starter made the word of such a box and gave it to this thread alone. It is taken only when the
        // state is there, for its memory goes back to the state's heap. `entered!` left the topmost words free.
        let start = unsafe {
            if state::attach((*(word as *const ThreadStart)).state).is_err() {
                exit(STATUS_BAD_START);
            }
            Box::from_raw(word as *mut ThreadStart)
        };
        let (run, with) = (start.run, start.with);
        drop(start);
        // SAFETY: the program says that this is a function of such a word (module theory).
        exit(unsafe { call_at(run, [with, 0, 0, 0]) })
    }
}
