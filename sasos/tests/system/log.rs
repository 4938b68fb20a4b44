//! The system's log as calls give it.

use abi::{
    Call, Error,
    address::PAGE,
    layout::{LOG_BYTES_MAX, TOPIC_LOG},
};
use kcore::ThreadId;
use sasos::lives::log::KEPT;

use crate::harness::System;

/// One call: the position of the first byte, and the text.
fn read(system: &mut System, thread: ThreadId, position: u64, buffer: (u64, u64)) -> Result<(u64, String), Error> {
    let (bytes, first) = system.call(thread, Call::SystemInfo, &[TOPIC_LOG, position, buffer.0, buffer.1])?;
    let mut text = vec![0; bytes as usize];
    system.load(thread, buffer.0, &mut text).expect("the buffer");
    Ok((first, String::from_utf8(text).expect("text")))
}

/// All lines from a position on, and the position behind them.
fn read_all(system: &mut System, thread: ThreadId, from: u64, buffer: (u64, u64)) -> (String, u64) {
    let (mut all, mut next) = (String::new(), from);
    loop {
        let (first, text) = read(system, thread, next, buffer).expect("lines");
        assert_eq!(first, next);
        if text.is_empty() {
            return (all, next);
        }
        next = first + text.len() as u64;
        all += &text;
    }
}

#[test]
fn lines_are_read_piece_by_piece_and_the_last_ones_are_kept() {
    let mut system = System::boot(811);
    let first = system.first;
    let (buffer, _) = system.object(first, 1);
    let child = system.task(first);
    assert!(system.set_word(child, 8, 1).is_err());
    system.reap(first, child).expect("it has ended");
    for room in [1, 7, 64, PAGE] {
        let (all, end) = read_all(&mut system, first, 0, (buffer, room));
        assert_eq!(end, all.len() as u64);
        assert!(all.contains(" start at ") && all.ends_with('\n'), "{all}");
        let logged = system.log();
        assert!(
            all.lines().count() >= 2 && all.lines().count() == logged.len(),
            "{all} {logged:?}"
        );
        for (line, logged) in all.lines().zip(logged) {
            assert!(line.ends_with(&logged) || line.len() == 239, "{line:?} {logged:?}");
        }
    }
    let (_, end) = read_all(&mut system, first, 0, (buffer, PAGE));
    let behind = read(&mut system, first, u64::MAX, (buffer, PAGE));
    assert_eq!(behind, Ok((end, String::new())));
    let mut end = end;
    while end < 2 * KEPT {
        let child = system.task(first);
        assert!(system.set_word(child, 8, 1).is_err());
        system.reap(first, child).expect("it has ended");
        system.pass(100_000_000);
        end = read_all(&mut system, first, end, (buffer, PAGE)).1;
    }
    // Older lines are gone, and what is left begins with a whole one.
    let (begin, text) = read(&mut system, first, 0, (buffer, PAGE)).expect("lines");
    assert!((KEPT - 256..=KEPT).contains(&(end - begin)), "{begin} {end}");
    assert_eq!(text.len() as u64, LOG_BYTES_MAX);
    let seconds = text.trim_start().split('.').next().expect("a time");
    assert!(seconds.parse::<u64>().is_ok(), "{text}");
    system.check_to_the_end();
}

#[test]
fn who_may_not_govern_the_system_sees_no_lines() {
    let mut system = System::boot(812);
    let first = system.first;
    let (empty, _) = system.object(first, 1);
    let lonely = system.task_with(first, empty, 0);
    let (theirs, _) = system.object(lonely, 1);
    assert_eq!(read(&mut system, lonely, 0, (theirs, PAGE)), Err(Error::BadAddress));
    system.check_to_the_end();
}
