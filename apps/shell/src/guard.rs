//! Work that may meet hostile objects, on a thread of its own.
//!
//! The owner of an object may cut it short while the shell reads it, and the read faults then. A fault ends the thread
//! that it strikes, and the whole task only if that is the task's first: so the first thread of the shell reads no
//! objects, but has others do it and tells how they ended.

use alloc::sync::Arc;

use abi::layout::ExitReport;
use rt::{
    println,
    report::{Image, Shown},
    sync::Mutex,
    thread,
};

/// Does work on a thread and gives its result; nothing if a fault or a panic ended it, which is then told under the name `what`.
pub fn guarded<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let result = Arc::new(Mutex::new(None));
    let place = Arc::clone(&result);
    let ended = thread::spawn(move || {
        let result = work();
        *place.lock() = Some(result);
        0
    })
    .and_then(thread::Thread::join);
    match ended {
        Ok(report) => tell(what, report),
        Err(error) => println!("{what}: {}", rt::Error::from(error)),
    }
    result.lock().take()
}

/// Tells of a fault.
fn tell(what: &str, report: ExitReport) {
    let image = Image {
        name: what,
        base: 0,
        bytes: 0,
    };
    Shown { report, image }.print();
}
