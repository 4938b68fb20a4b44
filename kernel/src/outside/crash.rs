//! The report of a server that has failed.

use alloc::string::String;
use core::fmt::Write;

use abi::nucleus::ROOT_IMAGE;
use kcore::{Hardware, outside::window};

use super::{Outside, Work};
use crate::{arch, log, system::System};

impl System<Outside> {
    /// The server has failed: says so, with all that helps to find out why, and stops the machine.
    pub(super) fn crash(&self, why: &str) -> ! {
        arch::halt_others();
        let outside = &self.supervisor;
        let context = *outside.context;
        log!("{}: {why}", abi::host::SERVER_CRASHED);
        match outside.work {
            Work::Start => log!("  it was starting"),
            Work::Call(number) => {
                let name = name(number);
                log!(
                    "  it was doing call {number} ({name}) of thread {:#x}",
                    self.current_id()
                );
            }
            Work::Event(event) => log!("  it was doing {event:x?}"),
            Work::Idle => {}
        }
        let image = context.rip.wrapping_sub(ROOT_IMAGE);
        log!("  at image + {image:#x}, cr2 {:016x}", arch::fault_address());
        let mut line = String::new();
        for (number, (name, value)) in context.named().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(line, "  {name:<3} {value:016x}");
            if number % 4 == 3 {
                log!("{}", core::mem::take(&mut line));
            }
        }
        log!("{line}");
        let hardware = &self.platform.kernel.hardware;
        let word = |address: u64| {
            let (frame, offset) = window::look(outside.root, address & !7, hardware)?;
            let bytes = hardware.bytes(frame).get(offset..offset + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let is_code = |value: u64| (ROOT_IMAGE..ROOT_IMAGE + (64 << 20)).contains(&value);
        for line in 0..6 {
            let at = context.rsp + line * 32;
            let words: [Option<u64>; 4] = core::array::from_fn(|index| word(at + index as u64 * 8));
            if let [Some(a), Some(b), Some(c), Some(d)] = words {
                log!("  {at:#014x}: {a:016x} {b:016x} {c:016x} {d:016x}");
            }
        }
        let mut returns = String::new();
        for value in (0..512)
            .map_while(|index| word(context.rsp + index * 8))
            .filter(|&value| is_code(value))
            .take(12)
        {
            let _ = write!(returns, " {:#x}", value - ROOT_IMAGE);
        }
        log!("  code on its stack, as offsets in its image:{returns}");
        log!("  the kernel is sound; what was synced or in a checkpoint is on the disk");
        arch::exit(abi::host::EXIT_PANIC)
    }

    fn current_id(&self) -> u64 {
        self.platform
            .kernel
            .current()
            .map_or(0, |index| self.platform.kernel.id_of(index).0)
    }
}

/// The name of a system call.
pub(super) fn name(number: u64) -> &'static str {
    let info = abi::call::TABLE.iter().find(|info| info.number == number);
    info.map_or("no call of the table", |info| info.name)
}
