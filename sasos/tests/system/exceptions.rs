//! Exception handlers.

use abi::{
    Call, Error,
    layout::{
        EXCEPTION_ARITHMETIC, EXCEPTION_ILLEGAL, EXCEPTION_PROTECTION, RESUME_AT, RESUME_END, RESUME_RETRY,
        STATUS_SYSTEM,
    },
};
use kcore::{Machine, ThreadId};
use sasos::{Event, Outcome};

use crate::harness::{Answer, ENTRY, System, Trouble};

impl System {
    fn trap(&mut self, thread: ThreadId, kind: u64) -> Outcome {
        self.run(thread);
        self.server.handle(
            &mut self.platform,
            Event::Exception {
                thread,
                kind,
                address: 0,
            },
        )
    }
}

#[test]
fn a_handler_is_called_and_goes_back() {
    let mut system = System::boot(50);
    let first = system.first;
    let child = system.task(first);
    let (object, _) = system.object(first, 1);
    let image = system.image_of(child);
    let handler = image + ENTRY + 256;
    assert_eq!(
        system.call(child, Call::ExcptReg, &[EXCEPTION_PROTECTION, handler]),
        Ok((0, 0))
    );
    assert_eq!(
        system.call(child, Call::ExcptReg, &[EXCEPTION_PROTECTION, handler]),
        Ok((handler, 0))
    );
    assert_eq!(
        system.call(child, Call::ExcptReg, &[0, handler]),
        Err(Error::BadArgument)
    );
    assert_eq!(
        system.call(child, Call::ExcptReg, &[99, handler]),
        Err(Error::BadArgument)
    );
    assert_eq!(system.call(child, Call::ExcptReg, &[3, object]), Err(Error::Protection));
    assert_eq!(
        system.call(child, Call::ExcptReturn, &[RESUME_RETRY, 0]),
        Err(Error::NoHandler)
    );
    let before = system.platform.thread_context(child);
    assert_eq!(system.set_word(child, object, 1), Err(Trouble::Elsewhere));
    let inside = system.platform.thread_context(child);
    assert_eq!(
        (inside.rip, inside.rdi, inside.rsi, inside.rdx, inside.rcx),
        (handler, EXCEPTION_PROTECTION, object, before.rip, 2)
    );
    assert!(
        inside.rsp < before.rsp - 128 && inside.rsp % 16 == 8,
        "as a C function finds it"
    );
    assert_eq!(inside.r12, 0);
    // It may make calls and touch memory like anybody.
    let (again, _) = system.object(child, 1);
    system.set_word(child, again, 1).unwrap();
    assert_eq!(
        system.start(child, Call::ExcptReturn, &[77, 0]),
        Answer::Done(Err(Error::BadArgument))
    );
    assert_eq!(
        system.start(child, Call::ExcptReturn, &[RESUME_AT, 1 << 63]),
        Answer::Done(Err(Error::BadArgument))
    );
    assert_eq!(
        system.start(child, Call::ExcptReturn, &[RESUME_RETRY, 0]),
        Answer::Elsewhere
    );
    assert_eq!(system.platform.thread_context(child), before);
    assert_eq!(system.set_word(child, object, 1), Err(Trouble::Elsewhere));
    assert_eq!(
        system.start(child, Call::ExcptReturn, &[RESUME_AT, image + ENTRY + 8]),
        Answer::Elsewhere
    );
    assert_eq!(system.platform.thread_context(child).rip, image + ENTRY + 8);
    assert_eq!(system.platform.thread_context(child).rsp, before.rsp);
    // Ended from inside.
    assert_eq!(system.set_word(child, object, 1), Err(Trouble::Elsewhere));
    assert_eq!(system.start(child, Call::ExcptReturn, &[RESUME_END, 0]), Answer::Gone);
    assert_eq!(system.reap(first, child), Ok(STATUS_SYSTEM + EXCEPTION_PROTECTION));
    system.check_to_the_end();
}

#[test]
fn an_exception_in_a_handler_is_not_handled() {
    let mut system = System::boot(51);
    let first = system.first;
    let child = system.task(first);
    let handler = system.image_of(child) + ENTRY;
    for kind in [EXCEPTION_ARITHMETIC, EXCEPTION_PROTECTION] {
        system.call(child, Call::ExcptReg, &[kind, handler]).unwrap();
    }
    assert_eq!(system.trap(child, EXCEPTION_ARITHMETIC), Outcome::Resume);
    assert_eq!(system.set_word(child, 4, 4), Err(Trouble::Ended));
    assert_eq!(system.reap(first, child), Ok(STATUS_SYSTEM + EXCEPTION_PROTECTION));
    let child = system.task(first);
    assert_eq!(system.trap(child, EXCEPTION_ILLEGAL), Outcome::Gone);
    assert_eq!(system.reap(first, child), Ok(STATUS_SYSTEM + EXCEPTION_ILLEGAL));
    system.check_to_the_end();
}

#[test]
fn endless_recursion_ends_alone() {
    let mut system = System::boot(52);
    let first = system.first;
    let child = system.task(first);
    let handler = system.image_of(child) + ENTRY;
    system
        .call(child, Call::ExcptReg, &[EXCEPTION_PROTECTION, handler])
        .unwrap();
    let mut stack = system.platform.thread_context(child).rsp;
    // The handler runs on the same stack, and faults in turn.
    let trouble = loop {
        stack -= 2048;
        system.platform.kernel.threads_mut().get_mut(child).context.rsp = stack;
        if let Err(trouble) = system.set_word(child, stack, 1) {
            break trouble;
        }
    };
    assert_eq!(trouble, Trouble::Elsewhere);
    let stack = system.platform.thread_context(child).rsp;
    assert_eq!(system.set_word(child, stack - 8, 1), Err(Trouble::Ended));
    assert_eq!(system.reap(first, child), Ok(STATUS_SYSTEM + EXCEPTION_PROTECTION));
    system.check_to_the_end();
}

/// An exception has a whole budget, also where the event before it has used all of its own.
#[test]
fn an_exception_has_a_budget_of_its_own() {
    let mut system = System::boot(58);
    let first = system.first;
    let ends_at_once = |system: &mut System, child: ThreadId| {
        assert_eq!(system.trap(child, EXCEPTION_ILLEGAL), Outcome::Gone);
        system.server.work.is_empty()
    };
    let child = system.task(first);
    assert!(ends_at_once(&mut system, child), "a small task takes one piece");
    let child = system.task(first);
    let (large, _) = system.object(first, 4000);
    for page in 0..2000 {
        system.set_word(first, large + page * 4096, 1).unwrap();
    }
    assert_eq!(system.start(first, Call::ObjDelete, &[large]), Answer::Blocked);
    assert!(
        ends_at_once(&mut system, child),
        "the delete's budget is not the exception's"
    );
    system.finish_work();
}
