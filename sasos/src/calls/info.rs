//! The system's reports on itself, and the calls that govern it as a whole.

use abi::{
    Error, Rights,
    address::ROOT_DIRECTORY,
    call::arguments::{SystemControl, SystemInfo},
    host::{EXIT_FAILURE, EXIT_REBOOT, EXIT_SUCCESS},
    layout::{
        CONTROL_CHECKPOINT, CONTROL_DISK, CONTROL_DROP_SNAPSHOT, CONTROL_KEEP_SNAPSHOT, CONTROL_POWER_OFF,
        CONTROL_REBOOT, CONTROL_SCRUB, DomainReport, LOG_BYTES_MAX, MemoryReport, TOPIC_BOOT, TOPIC_DOMAIN, TOPIC_LOG,
        TOPIC_MEMORY, TOPIC_OBJECT, TOPIC_SNAPSHOT, TOPIC_STORE, TOPIC_THREAD,
    },
};
use kcore::{SpaceId, wait::Key};

use crate::{
    Answer, Outcome, Server, Stop, World, calls::sight::Sight, lives::continuation::Continuation, lives::thread::Caller,
};

impl Server {
    /// `SystemInfo`.
    pub(crate) fn system_info(&mut self, world: &mut impl World, caller: Caller, arguments: SystemInfo) -> Answer {
        let SystemInfo {
            topic,
            index,
            buffer,
            room,
        } = arguments;
        let place = (buffer, room);
        match topic {
            TOPIC_MEMORY => self.tell(world, caller, place, &self.memory_report(world).to_bytes()),
            TOPIC_STORE => self.tell(world, caller, place, &self.store_report().to_bytes()),
            TOPIC_BOOT => self.tell(world, caller, place, &world.boot_report().to_bytes()),
            TOPIC_THREAD => {
                let thread = self.next_thread(world, caller, index)?;
                let report = thread.and_then(|thread| self.thread_report(world, thread, caller.thread));
                let report = report.ok_or(Error::NoSuchThread)?;
                self.tell(world, caller, place, &report.to_bytes())
            }
            TOPIC_DOMAIN => {
                let space = self.next_domain(world, caller, index)?;
                let space = space.ok_or(Error::BadAddress)?;
                let threads = self.threads_in(world, caller, space)?;
                let report = self.domain_report(world, space, threads).ok_or(Error::BadAddress)?;
                self.tell(world, caller, place, &report.to_bytes())
            }
            TOPIC_OBJECT => {
                let report = self.next_object(world, caller, index)?.ok_or(Error::BadAddress)?;
                self.tell(world, caller, place, &report.to_bytes())
            }
            TOPIC_SNAPSHOT => {
                let report = match self.sight(world, caller)? {
                    Sight::All => self.snapshot_report(index),
                    Sight::Own => None,
                };
                let report = report.ok_or(Error::BadAddress)?;
                self.tell(world, caller, place, &report.to_bytes())
            }
            TOPIC_LOG => match self.sight(world, caller)? {
                Sight::All => self.tell_log(world, caller, index, place),
                Sight::Own => Err(Error::BadAddress.into()),
            },
            _ => Err(Error::BadArgument.into()),
        }
    }

    /// Writes as much of a report as there is room for, in whole words, and tells how long it is.
    ///
    /// # Errors
    /// Those of the buffer.
    pub fn tell(&mut self, world: &mut impl World, caller: Caller, (buffer, room): (u64, u64), bytes: &[u8]) -> Answer {
        let fits = bytes.get(..room as usize & !7).unwrap_or(bytes);
        self.write_user(world, caller.domain, buffer, fits)?;
        Ok((bytes.len() as u64, 0))
    }

    /// Writes lines of the log from a position on: how many bytes, and the position of the first one.
    fn tell_log(
        &mut self,
        world: &mut impl World,
        caller: Caller,
        position: u64,
        (buffer, room): (u64, u64),
    ) -> Answer {
        let mut piece = [0; LOG_BYTES_MAX as usize];
        let room = room.min(LOG_BYTES_MAX) as usize;
        let (first, count) = self.log.read(position, &mut piece[..room]);
        self.write_user(world, caller.domain, buffer, &piece[..count])?;
        Ok((count as u64, first))
    }

    fn memory_report(&self, world: &impl World) -> MemoryReport {
        let kernel = world.kernel_frames();
        MemoryReport {
            frames: world.frames_total() + kernel,
            free: world.frames_free(),
            kernel,
            object_pages: self.objects.resident(),
            tables: self.pager.tables() + self.domains.tables(),
            objects: self.objects.count(),
            heap_bytes: world.heap().0,
        }
    }

    fn domain_report(&self, world: &impl World, space: SpaceId, threads: u64) -> Option<DomainReport> {
        let domain = self.domains.get(space)?;
        Some(DomainReport {
            domain: u64::from(space.0),
            task: domain.task.map_or(0, |task| task.0),
            pdx_object: self.callees.object_of(space).unwrap_or(0),
            clists: domain.apd.count() as u64,
            locked: domain.apd.locked() as u64,
            objects: domain.cached_objects(),
            tables: world.space_tables(space),
            threads,
        })
    }

    /// Begins or ends a scrub, which goes on with the clock.
    fn scrub_control(&mut self, world: &mut impl World, caller: Caller, argument: u64) -> Answer {
        if argument > 1 {
            return Err(Error::BadArgument.into());
        }
        self.validate(world, caller.domain, ROOT_DIRECTORY, Rights::D)?;
        match argument {
            0 => self.store.scrub_end(world),
            _ => self.ask_for_scrub(world),
        }
        Ok((0, 0))
    }

    /// `SystemControl`: operation, arguments.
    pub fn system_control(&mut self, world: &mut impl World, caller: Caller, arguments: SystemControl) -> Outcome {
        let SystemControl {
            operation, argument, ..
        } = arguments;
        let exit = match operation {
            CONTROL_CHECKPOINT => None,
            CONTROL_POWER_OFF if argument == u64::from(EXIT_SUCCESS) || argument == u64::from(EXIT_FAILURE) => {
                Some(argument as u8)
            }
            CONTROL_REBOOT => Some(EXIT_REBOOT),
            CONTROL_KEEP_SNAPSHOT | CONTROL_DROP_SNAPSHOT => {
                let drops = operation == CONTROL_DROP_SNAPSHOT;
                return Outcome::from(self.snapshot_control(world, caller, drops, &arguments));
            }
            CONTROL_DISK => return Outcome::from(self.disk_control(world, caller, argument)),
            CONTROL_SCRUB => return Outcome::from(self.scrub_control(world, caller, argument)),
            _ => return Outcome::Return(Err(Error::BadArgument)),
        };
        let begun = self.threads.record(caller.thread).continuation;
        // One to power off is over only if it has failed: another one's may have been the last, and have failed, and now this is to be the last.
        let is_asked_for =
            |number| exit.is_none() || self.checkpoint.is_closing() || self.checkpoint_reached(number) != Some(Ok(()));
        let number = if let Continuation::Checkpoint(number) = begun
            && is_asked_for(number)
        {
            number
        } else {
            if let Continuation::CheckpointForRoom(number) = begun
                && self.checkpoint_reached(number).is_none()
            {
                return Outcome::Block(Key::Checkpoint, None);
            }
            match self.validate(world, caller.domain, ROOT_DIRECTORY, Rights::D) {
                Ok(_) => {}
                // There may be no frame for the Clist that has the right before the very checkpoint that is asked for: once it is begun all the same.
                Err(Stop::Fail(Error::NoMemory)) if begun == Continuation::None && self.checkpoint.last_failed() => {
                    let number = self.checkpoint_request(world);
                    self.threads.record(caller.thread).continuation = Continuation::CheckpointForRoom(number);
                    return Outcome::Again;
                }
                Err(stop) => return Outcome::from(Err(stop)),
            }
            let number = match exit {
                Some(exit) => self.close(world, exit, false),
                None => self.checkpoint_request(world),
            };
            self.threads.record(caller.thread).continuation = Continuation::Checkpoint(number);
            number
        };
        match self.checkpoint_reached(number) {
            Some(Err(error)) => Outcome::Return(Err(error)),
            Some(Ok(())) if exit.is_none() => Outcome::Return(Ok((0, 0))),
            // Behind the last one the machine stops by itself.
            _ => Outcome::Block(Key::Checkpoint, None),
        }
    }
}
