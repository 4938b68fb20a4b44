//! The terminal, the control line, the interrupt character.

use abi::{
    Call, Error,
    layout::{EXCEPTION_INTERRUPT, PRIORITY_DEFAULT, STATUS_SYSTEM, STREAM_CONTROL, STREAM_TERMINAL, TASK_FOREGROUND},
};
use kcore::{Machine, ThreadId, wait::Key};
use sasos::{Event, Outcome};

use crate::harness::{Answer, ENTRY, System};

#[test]
fn bytes_go_out_as_far_as_there_is_room() {
    let mut system = System::boot(60);
    let first = system.first;
    let (buffer, _) = system.object(first, 2);
    let text: Vec<u8> = (0..5000_u32).map(|place| place as u8).collect();
    system.store(first, buffer, &text).unwrap();
    assert_eq!(
        system.call(first, Call::ConsoleWrite, &[STREAM_CONTROL, buffer, 5]),
        Ok((5, 0))
    );
    assert_eq!(
        system.call(first, Call::ConsoleWrite, &[STREAM_TERMINAL, buffer, 5000]),
        Ok((1024, 0)),
        "as many as the budget of an event is for"
    );
    assert_eq!(system.platform.kernel.hardware.output[0], text[..1024]);
    system.platform.kernel.hardware.room[0] = 300;
    assert_eq!(
        system.call(first, Call::ConsoleWrite, &[STREAM_TERMINAL, buffer, 5000]),
        Ok((300, 0))
    );
    assert_eq!(
        system.start(first, Call::ConsoleWrite, &[STREAM_TERMINAL, buffer, 10]),
        Answer::Blocked
    );
    system.platform.kernel.hardware.room[0] = 300;
    system.platform.wake(Key::ConsoleOut(STREAM_TERMINAL), u32::MAX);
    assert_eq!(system.wait_for(first), Answer::Done(Ok((10, 0))));
    // The end of the object cuts a write short; nothing readable is an error.
    assert_eq!(
        system.call(
            first,
            Call::ConsoleWrite,
            &[STREAM_CONTROL, buffer + 2 * 4096 - 256, 5000]
        ),
        Ok((256, 0))
    );
    assert_eq!(
        system.call(first, Call::ConsoleWrite, &[STREAM_CONTROL, buffer + 2 * 4096, 1]),
        Err(Error::BadAddress)
    );
    assert_eq!(
        system.call(first, Call::ConsoleWrite, &[2, buffer, 1]),
        Err(Error::BadArgument)
    );
    assert_eq!(system.call(first, Call::ConsoleWrite, &[0, 0, 0]), Ok((0, 0)));
    system.check_to_the_end();
}

#[test]
fn nothing_that_was_typed_is_lost() {
    let mut system = System::boot(61);
    let first = system.first;
    let (buffer, _) = system.object(first, 1);
    assert_eq!(
        system.start(first, Call::ConsoleRead, &[STREAM_TERMINAL, buffer, 10]),
        Answer::Blocked
    );
    system.platform.kernel.hardware.input[0].extend(b"hello");
    system.platform.wake(Key::ConsoleIn(STREAM_TERMINAL), 1);
    assert_eq!(system.wait_for(first), Answer::Done(Ok((5, 0))));
    assert_eq!(system.word(first, buffer).unwrap().to_le_bytes()[..5], *b"hello");
    system.platform.kernel.hardware.input[0].extend(b"again");
    assert_eq!(
        system.call(first, Call::ConsoleRead, &[STREAM_TERMINAL, buffer + 4096, 10]),
        Err(Error::BadAddress)
    );
    assert_eq!(
        system.call(first, Call::ConsoleRead, &[STREAM_TERMINAL, buffer, 3]),
        Ok((3, 0))
    );
    assert_eq!(
        system.call(first, Call::ConsoleRead, &[STREAM_TERMINAL, buffer + 3, 30]),
        Ok((2, 0))
    );
    assert_eq!(system.word(first, buffer).unwrap().to_le_bytes()[..5], *b"again");
    assert_eq!(
        system.call(first, Call::ConsoleRead, &[STREAM_TERMINAL, buffer, 0]),
        Ok((0, 0))
    );
    // As many as a piece holds come at once.
    let typed: Vec<u8> = (0..300_u32).map(|place| place as u8).collect();
    system.platform.kernel.hardware.input[0].extend(&typed);
    for (at, count) in [(0, 256), (256, 44)] {
        let read = [STREAM_TERMINAL, buffer + at, 300];
        assert_eq!(system.call(first, Call::ConsoleRead, &read), Ok((count, 0)));
    }
    let mut read = [0; 300];
    system.load(first, buffer, &mut read).unwrap();
    assert_eq!(read[..], typed);
    assert_eq!(
        system.call(first, Call::ConsoleRead, &[9, buffer, 1]),
        Err(Error::BadArgument)
    );
    // A script has no terminal.
    system.platform.kernel.hardware.boot.script = 1;
    assert_eq!(
        system.call(first, Call::ConsoleRead, &[STREAM_TERMINAL, buffer, 10]),
        Ok((0, 0))
    );
    assert_eq!(
        system.start(first, Call::ConsoleRead, &[STREAM_CONTROL, buffer, 10]),
        Answer::Blocked
    );
    system.check();
}

/// The interrupt character ends a task while its parent waits for it.
fn interrupt_ends(system: &mut System, parent: ThreadId, child: ThreadId) {
    assert_eq!(
        system.start(parent, Call::ThreadWait, &[child.0, u64::MAX, 0]),
        Answer::Blocked
    );
    system.run(child);
    assert_eq!(
        system.server.handle(&mut system.platform, Event::Interrupt),
        Outcome::Gone
    );
    assert_eq!(
        system.wait_for(parent),
        Answer::Done(Ok((child.0, STATUS_SYSTEM + EXCEPTION_INTERRUPT)))
    );
}

#[test]
fn an_interrupt_ends_the_foreground_task_and_nothing_else() {
    let mut system = System::boot(62);
    let first = system.first;
    assert_eq!(
        system.server.handle(&mut system.platform, Event::Interrupt),
        Outcome::Resume
    );
    let [child, other] = [(); 2].map(|()| system.task(first));
    system.call(first, Call::ConsoleForeground, &[child.0]).unwrap();
    interrupt_ends(&mut system, first, child);
    assert_eq!(
        system.server.handle(&mut system.platform, Event::Interrupt),
        Outcome::Resume
    );
    system.call(first, Call::ConsoleForeground, &[other.0]).unwrap();
    system.call(first, Call::ConsoleForeground, &[0]).unwrap();
    assert_eq!(
        system.server.handle(&mut system.platform, Event::Interrupt),
        Outcome::Resume
    );
    system.call(first, Call::ConsoleForeground, &[other.0]).unwrap();
    system.exit(other, 0);
    assert_eq!(
        system.server.handle(&mut system.platform, Event::Interrupt),
        Outcome::Resume
    );
    system.check_to_the_end();
}

/// A child that passes the foreground on with its first call is not refused, and an interrupt before that ends it.
#[test]
fn a_task_may_begin_in_the_foreground() {
    let mut system = System::boot(66);
    let first = system.first;
    let priority = PRIORITY_DEFAULT | TASK_FOREGROUND;
    let start = |system: &mut System, parent| {
        let image = system.image(parent);
        let made = system.call(parent, Call::TaskCreate, &[image + ENTRY, 0, 0, 0, priority]);
        ThreadId(made.unwrap().0)
    };
    let shell = start(&mut system, first);
    let job = start(&mut system, shell);
    system.call(job, Call::ConsoleForeground, &[0]).unwrap();
    let job = start(&mut system, shell);
    interrupt_ends(&mut system, shell, job);
    // Who does not hold the terminal starts the task, and the interrupt is nobody's.
    let stranger = system.task(first);
    let job = start(&mut system, stranger);
    assert_eq!(system.call(job, Call::ConsoleForeground, &[0]), Err(Error::Protection));
    assert_eq!(
        system.server.handle(&mut system.platform, Event::Interrupt),
        Outcome::Resume
    );
    // No other bit beside the priority means anything.
    let image = system.image(first);
    for bit in (8..64).filter(|&bit| 1 << bit != TASK_FOREGROUND) {
        assert_eq!(
            system.call(
                first,
                Call::TaskCreate,
                &[image + ENTRY, 0, 0, 0, PRIORITY_DEFAULT | 1 << bit]
            ),
            Err(Error::BadArgument)
        );
    }
    system.check_to_the_end();
}

/// Whatever the task in the foreground does with it, the interrupt character typed three times within a second ends that task.
#[test]
fn who_insists_ends_what_runs() {
    const SECOND_NS: u64 = 1_000_000_000;
    let mut system = System::boot(64);
    let first = system.first;
    let types = |system: &mut System, after_ns: u64| {
        system.platform.kernel.hardware.now_ns += after_ns;
        system.server.handle(&mut system.platform, Event::Interrupt)
    };
    // It keeps the character for itself, or sends one child after another.
    for sends in [false, true] {
        let program = system.task(first);
        system.call(first, Call::ConsoleForeground, &[program.0]).unwrap();
        let next = |system: &mut System| {
            let child = if sends { system.task(program).0 } else { 0 };
            system.call(program, Call::ConsoleForeground, &[child]).unwrap();
        };
        let single = if sends { Outcome::Gone } else { Outcome::Resume };
        for after_ns in [SECOND_NS, SECOND_NS / 2, SECOND_NS / 2, SECOND_NS, SECOND_NS / 3] {
            next(&mut system);
            assert_eq!(types(&mut system, after_ns), single);
        }
        next(&mut system);
        assert_eq!(types(&mut system, SECOND_NS / 3), Outcome::Gone);
        assert_eq!(
            system.call(first, Call::ThreadWait, &[program.0, u64::MAX, 0]),
            Ok((program.0, STATUS_SYSTEM + EXCEPTION_INTERRUPT))
        );
    }
    // At the prompt there is nobody to end.
    system.call(first, Call::ConsoleForeground, &[0]).unwrap();
    for _ in 0..9 {
        assert_eq!(types(&mut system, 1), Outcome::Resume);
    }
    system.check_to_the_end();
}

/// A task that was never given the terminal can neither keep the interrupt from others nor turn it on them.
#[test]
fn only_who_holds_the_terminal_says_what_an_interrupt_ends() {
    let mut system = System::boot(63);
    let first = system.first;
    let [shell, stranger] = [(); 2].map(|()| system.task(first));
    let theirs = system.task(stranger);
    system.call(first, Call::ConsoleForeground, &[shell.0]).unwrap();
    for thread in [0, theirs.0] {
        assert_eq!(
            system.call(stranger, Call::ConsoleForeground, &[thread]),
            Err(Error::Protection)
        );
    }
    // The one in the foreground passes it on, takes it back, and may be overruled.
    let job = system.task(shell);
    system.call(shell, Call::ConsoleForeground, &[job.0]).unwrap();
    let deeper = system.task(job);
    system.call(job, Call::ConsoleForeground, &[deeper.0]).unwrap();
    system.call(shell, Call::ConsoleForeground, &[job.0]).unwrap();
    system.call(job, Call::ConsoleForeground, &[0]).unwrap();
    system.call(shell, Call::ConsoleForeground, &[0]).unwrap();
    assert_eq!(system.call(job, Call::ConsoleForeground, &[0]), Err(Error::Protection));
    system.call(first, Call::ConsoleForeground, &[stranger.0]).unwrap();
    assert_eq!(
        system.call(shell, Call::ConsoleForeground, &[0]),
        Err(Error::Protection)
    );
    // Nobody below the one that was overruled holds it any more either.
    system.call(first, Call::ConsoleForeground, &[shell.0]).unwrap();
    system.call(shell, Call::ConsoleForeground, &[job.0]).unwrap();
    system.call(first, Call::ConsoleForeground, &[stranger.0]).unwrap();
    assert_eq!(system.call(job, Call::ConsoleForeground, &[0]), Err(Error::Protection));
    system.call(stranger, Call::ConsoleForeground, &[theirs.0]).unwrap();
    system.exit(theirs, 0);
    system.call(stranger, Call::ConsoleForeground, &[0]).unwrap();
    system.call(first, Call::ConsoleForeground, &[shell.0]).unwrap();
    system.exit(shell, 0);
    assert_eq!(
        system.server.handle(&mut system.platform, Event::Interrupt),
        Outcome::Resume
    );
    system.check_to_the_end();
}

/// Over the control line goes whether a script succeeded, so no other task speaks or listens there.
#[test]
fn the_control_line_is_the_first_tasks() {
    let mut system = System::boot(66);
    let first = system.first;
    let other = system.task(first);
    for call in [Call::ConsoleWrite, Call::ConsoleRead] {
        let (buffer, _) = system.object(other, 1);
        assert_eq!(
            system.call(other, call, &[STREAM_CONTROL, buffer, 1]),
            Err(Error::Protection)
        );
        assert_eq!(
            system.call(other, call, &[STREAM_CONTROL + 1, buffer, 1]),
            Err(Error::BadArgument)
        );
    }
    system.check_to_the_end();
}
