//! The kernel debugger on the third serial line (`./gond run --debugger`).
//!
//! The line interrupts when something is typed, and a whole line is answered inside that interrupt, with the kernel
//! lock held: what is shown is one moment, and nothing runs meanwhile. `stop` stays inside until `continue`. Without
//! the line nothing here is ever reached. The language and most answers are `kcore`'s
//! ([`kcore::debugger`], [`kcore::Kernel::report`]).

use core::fmt::{self, Write};

use abi::host::{DEBUGGER_PORT, DEBUGGER_PROMPT};
use drivers::serial::{Cause, Listen, Serial};
use kcore::{
    Half, Hardware, Kernel,
    debugger::{Command, HELP, LineEditor, Typed, parse},
};

use crate::{
    arch::{self, IoPorts},
    trace::TRACE,
};

/// How often the line is looked at until it takes what is written; then nobody is there to read it.
const PATIENCE: u32 = 1_000_000;

/// How often an interrupt's causes are looked at.
const ROUNDS: u32 = 1000;

/// The debugger: its line, if the machine has one, and what is being typed.
pub struct Debugger {
    port: Port,
    editor: LineEditor,
}

/// Whether the system goes on after a command.
#[derive(Copy, Clone, PartialEq, Eq)]
enum After {
    GoesOn,
    Stands,
}

impl Debugger {
    /// The debugger, on its line if there is one.
    pub fn new() -> Self {
        let mut serial = Serial::new(IoPorts, DEBUGGER_PORT).ok();
        if let Some(serial) = &mut serial {
            serial.listen(Listen::ToReceiver);
        }
        Self {
            port: Port { serial, gone: Gone::No },
            editor: LineEditor::default(),
        }
    }

    /// Handles the line's interrupt. Comes back when all lines typed so far are answered and the system may go on.
    pub fn attend<H: Hardware, P: Half>(&mut self, kernel: &Kernel<H, P>) {
        let mut after = After::GoesOn;
        // A line that keeps on interrupting must not keep the processor, unless it was asked to.
        let mut rounds = 0;
        loop {
            while let Some(byte) = self.port.read() {
                after = self.take(byte, kernel).unwrap_or(after);
            }
            rounds += 1;
            // Without a cause left, the next byte interrupts anew.
            let quiet = self.port.cause().is_none() || rounds > ROUNDS;
            if after == After::GoesOn && quiet {
                return;
            }
            core::hint::spin_loop();
        }
    }

    /// Takes a byte; a line that is complete is answered, and tells whether the system goes on.
    fn take<H: Hardware, P: Half>(&mut self, byte: u8, kernel: &Kernel<H, P>) -> Option<After> {
        let port = &mut self.port;
        port.gone = Gone::No;
        let done = match self.editor.push(byte) {
            Typed::Nothing => Ok(None),
            Typed::Echo(byte) => port.write_char(char::from(byte)).map(|()| None),
            Typed::Erased => port.write_str("\x08 \x08").map(|()| None),
            Typed::Discarded => port.write_str("^C\n").and_then(|()| port.prompt()).map(|()| None),
            Typed::Line => port.answer(self.editor.take(), kernel),
        };
        // Writing fails only where nobody reads.
        done.ok().flatten()
    }
}

/// Whether somebody reads what is written.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Gone {
    No,
    Yes,
}

/// The line as something to write to.
struct Port {
    serial: Option<Serial<IoPorts>>,
    gone: Gone,
}

impl Port {
    fn read(&mut self) -> Option<u8> {
        self.serial.as_mut()?.read_byte()
    }

    fn cause(&mut self) -> Option<Cause> {
        self.serial.as_mut()?.cause()
    }

    fn prompt(&mut self) -> fmt::Result {
        self.write_str(DEBUGGER_PROMPT)
    }

    /// Answers a line; tells whether the system goes on, if that was asked.
    fn answer<H: Hardware, P: Half>(&mut self, line: &str, kernel: &Kernel<H, P>) -> Result<Option<After>, fmt::Error> {
        self.write_str("\n")?;
        let mut after = None;
        match parse(line) {
            Err(misuse) => writeln!(self, "{misuse}")?,
            Ok(Command::Help) => self.write_str(HELP)?,
            Ok(Command::Trace(count)) => TRACE.show(count, arch::ticks_per_us(), self)?,
            Ok(Command::Stop) => {
                after = Some(After::Stands);
                writeln!(self, "the system stands; 'continue' lets it go on")?;
            }
            Ok(Command::Continue) => after = Some(After::GoesOn),
            Ok(Command::Panic) => panic!("asked for in the debugger"),
            Ok(command) => kernel.report(command, self)?,
        }
        self.prompt()?;
        Ok(after)
    }
}

impl fmt::Write for Port {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                self.write_byte(b'\r')?;
            }
            self.write_byte(byte)?;
        }
        Ok(())
    }
}

impl Port {
    fn write_byte(&mut self, byte: u8) -> fmt::Result {
        let (Some(serial), Gone::No) = (&mut self.serial, self.gone) else {
            return Err(fmt::Error);
        };
        for _ in 0..PATIENCE {
            if serial.write_byte(byte).is_ok() {
                return Ok(());
            }
        }
        self.gone = Gone::Yes;
        Err(fmt::Error)
    }
}
