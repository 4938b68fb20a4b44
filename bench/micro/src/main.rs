//! Micro-benchmarks of the system, measured from inside with the time-stamp counter.
//!
//! `micro` prints a line for each row ([`rows::ROWS`]): `row=NAME ticks=MEDIAN min=… n=… ns=…`, all for
//! one operation, warm. `micro ROW...` measures only those; `micro --list` tells what each measures.
//! `micro --scale` measures what several threads get done together, for a machine with several processors. `micro --started NAME` tells how long the start took, and the bytes of the
//! server's heap: the rows `start-NAME` and `start-NAME-heap`. With FIRST COUNT STEP it reads so many objects then and tells the bytes once more.
//! Under an instruction-counting emulator a tick is an instruction, the nanoseconds mean nothing, and
//! the row that waits for the disk is left out unless it is named.
#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

mod disk;
mod idle;
mod latency;
mod protected;
mod rows;
mod scale;

use alloc::{format, string::String, vec::Vec};

use rt::{arguments, println, system};

rt::entry!(main);

/// The word on the start page of the program that does nothing: the task that the row
/// `task-create-exit` creates.
const WORD_NOTHING: u64 = 1;
/// The word for the program that makes many objects and ends: the task of the row `longest-task-end`.
const WORD_MANY_OBJECTS: u64 = 2;

/// The rate of the tick counter where it counts instructions.
const TICKS_PER_US_COUNTING: u64 = 1_000;

fn main() -> Result<(), String> {
    if arguments::word() == WORD_NOTHING {
        return Ok(());
    }
    if arguments::word() == WORD_MANY_OBJECTS {
        return latency::make_objects().map_err(|error| format!("{error}"));
    }
    if arguments::word() > WORD_MANY_OBJECTS {
        // The semaphores of the row `sem-round-trip-tasks`.
        rows::answer(arguments::word());
        return Ok(());
    }
    let wanted: Vec<&str> = arguments::rest().collect();
    if wanted == ["--list"] {
        for row in rows::ROWS {
            println!("{:<28}{}", row.name, row.text);
        }
        return Ok(());
    }
    let ticks_per_us = system::boot().map_or(0, |boot| boot.ticks_per_us);
    if let ["--started", name, ref objects @ ..] = wanted[..] {
        let memory = system::memory().map_err(|error| format!("not measured: {error}"))?;
        let boot = system::boot().map_err(|error| format!("not measured: {error}"))?;
        println!("row=start-{name} ticks={}", boot.boot_ns);
        println!("row=start-{name}-heap bytes={}", memory.heap_bytes);
        let objects: Vec<u64> = objects.iter().map_while(|number| number.parse().ok()).collect();
        if let [first, count, step] = objects[..] {
            disk::read_some(first, count, step).map_err(|error| format!("not measured: {error}"))?;
            let memory = system::memory().map_err(|error| format!("not measured: {error}"))?;
            println!("row=start-{name}-active-heap bytes={}", memory.heap_bytes);
        }
        return Ok(());
    }
    if wanted == ["--scale"] {
        let measured = scale::measure(|samples| println!("{}", samples.row(ticks_per_us)));
        return measured.map_err(|error| format!("not measured: {error}"));
    }
    if let Some(unknown) = wanted
        .iter()
        .find(|name| rows::ROWS.iter().all(|row| row.name != **name))
    {
        return Err(format!("there is no row '{unknown}'; 'micro --list' lists them"));
    }
    // Where instructions are counted, waiting for a device counts as many as the clock jumps over.
    let unwanted = if ticks_per_us == TICKS_PER_US_COUNTING {
        rows::WAITS
    } else {
        ""
    };
    let is_wanted = |name: &str| {
        if wanted.is_empty() {
            // Those of the disk need data that stands there from the start.
            name != unwanted && !name.starts_with("disk-") && !name.starts_with("writer-")
        } else {
            wanted.contains(&name)
        }
    };
    let mut failed = Vec::new();
    for row in rows::ROWS.iter().filter(|row| is_wanted(row.name)) {
        match (row.run)(row.name) {
            Ok(samples) => println!("{}", samples.row(ticks_per_us)),
            Err(error) => {
                println!("{}: {error}", row.name);
                failed.push(row.name);
            }
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("not measured: {}", failed.join(", ")))
    }
}
