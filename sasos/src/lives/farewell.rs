//! The end of the first task. Nobody is left then who could start programs or switch off, so the server says why, has
//! everything made stable, and stops the machine with an outcome that is no success.

use core::fmt::{self, Write};

use abi::{
    host::EXIT_FAILURE,
    layout::{ExitReport, STREAM_TERMINAL, exception_name},
};
use kcore::ThreadId;

use crate::{Server, World, lives::task::TaskId};

/// The terminal, as far as it takes what is written at once.
struct Terminal<'a, W>(&'a mut W);

impl<W: World> Write for Terminal<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.console_write(STREAM_TERMINAL, text.as_bytes());
        Ok(())
    }
}

impl Server {
    /// A thread of the first task has ended: if it is the task's first, this is why the task ends.
    pub(crate) fn tell_first_end(
        &mut self,
        world: &mut impl World,
        task: TaskId,
        thread: ThreadId,
        report: ExitReport,
    ) {
        if self.tasks.get(task).is_none_or(|task| task.first != thread) {
            return;
        }
        let mut terminal = Terminal(world);
        // The log has the text that the terminal does not take.
        let _ = match report.exception {
            0 => writeln!(
                terminal,
                "\nThe first program has ended with status {:#x}.",
                report.status
            ),
            kind => writeln!(
                terminal,
                "\nThe first program has ended: {} at instruction {:#x}, address {:#x}.",
                exception_name(kind),
                report.instruction,
                report.address
            ),
        };
        self.say(world, format_args!("the first program has ended: {report:?}"));
    }

    /// The first task has ended, and all that it did is to be stable before the machine stops, if that can be.
    pub(crate) fn first_task_ended(&mut self, world: &mut impl World) {
        self.close(world, EXIT_FAILURE, true);
    }
}
