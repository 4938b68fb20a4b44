//! A first program: it counts its runs in an object that outlives them.
//!
//! There is no file to open, read or write. The counter is a word of memory at an address that stays
//! the same for ever; the directory remembers the address under a name. `docs/guide/first-program.md`
//! walks through every line.
#![cfg_attr(target_os = "none", no_std, no_main)]

use rt::{Cell, Directory, Kind, Result, println};

rt::entry!(main);

/// The name of the counter's object in the root directory.
const COUNTER: &str = "hello-counter";

fn main() -> Result<()> {
    let mut directory = Directory::root()?;
    let object = match directory.open_object(COUNTER)? {
        Some(object) => object,
        None => directory.create(COUNTER, Kind::Data, 4096, 0)?,
    };

    let counter: &Cell<u64> = object.first()?;
    counter.set(counter.get() + 1);

    println!(
        "hello, world: run {} of this program, and the counter is at {:#x}",
        counter.get(),
        object.base()
    );
    Ok(())
}
