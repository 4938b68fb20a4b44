//! The kernel's end of the machine calls.

use core::ops::Range;

use abi::{
    Error, Rights,
    address::{PAGES_PER_SLOT, SLOT, USER_END},
    layout::BootReport,
    machine::MachineCall as M,
};

use super::{FRAME_WORDS, OPERATION_WORDS, checked_context, frame_to_words, operation_from_words, resumed_of, window};
use crate::{
    Frame, Hardware, Kernel, Leaf, Machine, Shortage, SpaceId, ThreadId,
    frames::PAGE_BYTES,
    machine::{Intercept, Stacks},
    paging::decode_page,
    portal::Stale,
    scheduler::Standing,
    shares::ROWS_MAX,
    thread::{Context, Operation},
    wait::Key,
};

impl From<Shortage> for Error {
    fn from(shortage: Shortage) -> Self {
        match shortage {
            Shortage::Frames => Error::NoMemory,
            Shortage::Spaces | Shortage::Threads => Error::TableFull,
        }
    }
}

/// The place of the server outside.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The supervisor space: no call may name it.
    pub space: SpaceId,
    /// The frame of the exchange page.
    pub exchange: Frame,
}

/// The exchange page as both ends use it.
struct Exchange(Frame);

impl Exchange {
    fn words<const N: usize>(&self, hardware: &impl Hardware) -> [u64; N] {
        core::array::from_fn(|index| {
            let mut bytes = [0; 8];
            hardware.read(self.0, index * 8, &mut bytes);
            u64::from_le_bytes(bytes)
        })
    }

    fn put<const N: usize>(&self, hardware: &mut impl Hardware, words: [u64; N]) {
        for (index, word) in words.iter().enumerate() {
            hardware.write(self.0, index * 8, &word.to_le_bytes());
        }
    }
}

type Answer = Result<(u64, u64), Error>;

const DONE: Answer = Ok((0, 0));

impl<H: Hardware> Kernel<H> {
    /// Answers a machine call of the server outside. Calls about devices and about the event itself are the kernel
    /// binary's, and not known here.
    ///
    /// # Errors
    /// [`Error::BadCall`] for what is no such call; [`Error::NoMemory`], [`Error::TableFull`]; [`Error::BadArgument`] and
    /// [`Error::NoSuchThread`] for what does not exist.
    #[allow(clippy::too_many_lines, reason = "one match over the table")]
    pub fn machine_call(&mut self, call: M, arguments: [u64; 6], place: Place) -> Answer {
        let [first, second, third, fourth, fifth, _] = arguments;
        let exchange = Exchange(place.exchange);
        let known_space = |kernel: &Self, number| {
            kernel
                .known_space(number)
                .filter(|&space| space != place.space)
                .ok_or(Error::BadArgument)
        };
        let known_share = |number: u64| {
            let fits = (number as usize) < ROWS_MAX;
            fits.then_some(number as u32).ok_or(Error::BadArgument)
        };
        match call {
            M::FrameZeroed => return Ok((u64::from(self.frame_zeroed()?.number()), 0)),
            M::FrameAny => return Ok((u64::from(self.frame_any()?.number()), 0)),
            M::FrameShare => self.frame_share(self.known_frame(first)?),
            M::FrameRelease => self.frame_release(self.known_frame(first)?),
            M::FrameReferences => {
                let frame = self.known_frame(first)?;
                return Ok((self.frame_references(frame).into(), self.frame_is_held(frame).into()));
            }
            M::FrameHold => self.frame_hold(self.known_frame(first)?),
            M::FrameLetGo => self.frame_let_go(self.known_frame(first)?),
            M::FrameCounts => return Ok((self.frames_free(), self.frames_total())),
            M::KernelFrames => return Ok((Machine::kernel_frames(self), 0)),

            M::LeafCreate => return Ok((u64::from(self.leaf_create()?.frame().number()), 0)),
            M::LeafDestroy => self.leaf_destroy(Leaf::named(self.known_frame(first)?)),
            M::LeafSet => {
                let leaf = Leaf::named(self.known_frame(first)?);
                let entry = decode_page(third);
                if let Some(entry) = entry {
                    self.known_frame(u64::from(entry.frame.number()))?;
                }
                if second >= PAGES_PER_SLOT {
                    return Err(Error::BadArgument);
                }
                self.leaf_set(leaf, second as usize, entry);
            }
            M::LeafShare => {
                let (from, entries) = self.known_entries(first, second, third)?;
                let to = Leaf::named(self.known_frame(fourth)?);
                known_range(fifth, third)?;
                return Ok((u64::from(self.leaf_share(from, entries, to, fifth as usize)), 0));
            }
            M::LeafClear => {
                let (leaf, entries) = self.known_entries(first, second, third)?;
                self.leaf_clear(leaf, entries);
            }

            M::SpaceCreate => return Ok((u64::from(self.space_create()?.0), 0)),
            M::SpaceDestroy => self.space_destroy(known_space(self, first)?),
            M::SpaceTrim => {
                let space = known_space(self, first)?;
                // One more, so that nought says that tables are left.
                return Ok((self.space_trim(space, second).map_or(0, |left| left + 1), 0));
            }
            M::Link => {
                let (space, leaf) = (known_space(self, first)?, Leaf::named(self.known_frame(third)?));
                let rights = Rights::from_bits(fourth).ok_or(Error::BadArgument)?;
                self.link(space, known_slot(second)?, leaf, rights)?;
            }
            M::Unlink => self.unlink(known_space(self, first)?, known_slot(second)?),
            M::FlushSpace => self.flush_space(known_space(self, first)?),
            M::FlushPage => self.flush_page(first),
            M::FlushEverything => self.flush_everything(),
            M::SpaceTables => return Ok((self.space_tables(known_space(self, first)?), 0)),

            M::ThreadCreate => {
                let space = known_space(self, first)?;
                if second >= USER_END {
                    return Err(Error::BadArgument);
                }
                let words = exchange.words(&self.hardware);
                let standing = Standing::new(known_share(fifth)?, fourth.min(255) as u8);
                let thread = self.thread_create(space, second, third, words, standing)?;
                return Ok((thread.0, 0));
            }
            M::ThreadDestroy => self.thread_destroy(ThreadId(first)),
            M::ThreadWake => {
                let resumed = resumed_of(second).ok_or(Error::BadArgument)?;
                self.thread_wake(ThreadId(first), resumed);
            }
            M::ThreadSuspend => self.thread_suspend(ThreadId(first)),
            M::Wake => {
                let key = self.known_key(first, second)?;
                return Ok((u64::from(self.wake(key, third.min(u64::from(u32::MAX)) as u32)), 0));
            }
            M::WakeWords => return Ok((u64::from(self.wake_words(first..second)), 0)),
            M::Oldest => {
                let oldest = self.oldest(self.known_key(first, second)?);
                return Ok(oldest.map_or((0, 0), |(thread, space)| (thread.0, u64::from(space.0))));
            }
            // With nobody on this processor the thread would run at once, where the server does.
            M::ThreadAnswer if self.current().is_none() => return Err(Error::BadArgument),
            M::ThreadAnswer => self.thread_answer(self.known_thread(first)?, second, third),
            M::ThreadIsReady => return Ok((u64::from(self.thread_is_ready(self.known_thread(first)?)), 0)),
            M::ThreadSpace => return Ok((u64::from(self.thread_space(self.known_thread(first)?).0), 0)),
            M::ThreadContext => {
                let context = self.thread_context(self.known_thread(first)?);
                exchange.put(&mut self.hardware, context.to_words());
            }
            M::ThreadSetContext => {
                let thread = self.known_thread(first)?;
                let context: Context = checked_context(exchange.words(&self.hardware)).ok_or(Error::BadArgument)?;
                self.thread_set_context(thread, &context);
            }
            M::ThreadDropOperation => return Ok((self.thread_drop_operation(self.known_thread(first)?).into(), 0)),
            M::ThreadTime => return Ok((self.thread_time_ns(self.known_thread(first)?), 0)),
            M::ThreadWaited => return Ok((self.thread_waited_ns(self.known_thread(first)?), 0)),
            M::ThreadSetPriority => self.thread_set_priority(ThreadId(first), second.min(255) as u8),
            M::ShareOpen => self.share_open(known_share(first)?, known_share(second)?, third)?,
            M::ShareTold => return Ok(self.share_told(known_share(first)?)),

            M::PortalEnter => {
                let (thread, callee) = (self.known_thread(first)?, known_space(self, second)?);
                if third >= USER_END {
                    return Err(Error::BadArgument);
                }
                let words = exchange.words(&self.hardware);
                let stacks = if fourth == 0 { Stacks::Open } else { Stacks::All };
                let entered = self.portal_enter(thread, callee, third, words, stacks);
                return Ok((u64::from(entered.is_some()), 0));
            }
            M::PortalLeave => {
                let thread = self.known_thread(first)?;
                let Some(frame) = self.portal_leave(thread, second, third, fourth) else {
                    return DONE;
                };
                exchange.put::<FRAME_WORDS>(&mut self.hardware, frame_to_words(&frame));
                return Ok((1, 0));
            }
            M::PortalDepth => return Ok((self.portal_depth(self.known_thread(first)?) as u64, 0)),
            M::PortalFrame => {
                let thread = self.known_thread(first)?;
                let Some(frame) = self.portal_frame(thread, second as usize) else {
                    return DONE;
                };
                exchange.put::<FRAME_WORDS>(&mut self.hardware, frame_to_words(&frame));
                return Ok((1, 0));
            }
            M::PortalCache => {
                let (caller, callee) = (known_space(self, first)?, known_space(self, fourth)?);
                if second >= USER_END {
                    return Err(Error::BadArgument);
                }
                self.portal_cache(caller, second, third, callee);
            }
            M::PortalForget => {
                let stale = match first {
                    0 => Stale::All,
                    1 => Stale::CallsOf(known_space(self, second)?),
                    2 => Stale::CallsInto(known_space(self, second)?),
                    _ => return Err(Error::BadArgument),
                };
                self.portal_forget(stale);
            }
            M::PortalInterceptReturn => {
                let intercept = if second == 0 { Intercept::No } else { Intercept::Yes };
                self.portal_intercept(self.known_thread(first)?, intercept);
            }
            M::PortalFreeStacks => {
                let callee = known_space(self, first)?;
                return Ok((self.portal_free_stacks(callee) as u64, 0));
            }
            M::PortalAddStack => self.portal_add_stack(known_space(self, first)?, second),

            M::Now => return Ok((self.now_ns(), self.boot_time_ns())),
            M::Random => return Ok((Machine::random(self), 0)),
            M::StirRandom => self.stir_random([first, second]),
            M::ConsoleWrite => {
                let length = known_length(second)?;
                let mut bytes = [0; PAGE_BYTES];
                self.hardware.read(exchange.0, 0, &mut bytes[..length]);
                return Ok((Machine::console_write(self, first, &bytes[..length]) as u64, 0));
            }
            M::ConsoleRead => {
                let byte = Machine::console_read(self, first);
                return Ok((u64::from(byte.unwrap_or(0)), u64::from(byte.is_some())));
            }
            M::Log => {
                let length = known_length(first)?;
                let mut bytes = [0; PAGE_BYTES];
                self.hardware.read(exchange.0, 0, &mut bytes[..length]);
                self.hardware.log_bytes(&bytes[..length]);
                self.hardware.log_bytes(b"\n");
            }
            M::Stop => Machine::stop(self, first as u8),
            M::BootReport => {
                let report: BootReport = self.hardware.boot_report();
                exchange.put(&mut self.hardware, report.to_words());
            }
            _ => return Err(Error::BadCall),
        }
        DONE
    }

    /// Shows memory, or devices, from one physical address to another in the window of the space with this root ([`window::show`]).
    ///
    /// # Errors
    /// [`Shortage::Frames`].
    pub fn show_window(&mut self, root: Frame, from: u64, to: u64) -> Result<(), Shortage> {
        let tables = self.tables();
        window::show(root, from, to, tables.frames, tables.hardware)
    }

    /// The call that the server wants to be done again.
    pub fn to_do_again(&self, place: Place) -> Operation {
        operation_from_words(Exchange(place.exchange).words::<OPERATION_WORDS>(&self.hardware))
    }

    /// The key, deadline and call of an `AnswerBlock` for an event that was a call, or not.
    ///
    /// # Errors
    /// [`Error::BadArgument`] for a key that there is not.
    pub fn blocked_on(
        &self,
        [kind, value, deadline, ..]: [u64; 6],
        place: Place,
    ) -> Result<(Key, Option<u64>, Operation), Error> {
        let key = self.known_key(kind, value)?;
        let deadline = (deadline != u64::MAX).then_some(deadline);
        Ok((key, deadline, self.to_do_again(place)))
    }

    fn known_key(&self, kind: u64, value: u64) -> Result<Key, Error> {
        let key = Key::of_words(kind, value)
            .filter(|&key| key != Key::Supervisor)
            .ok_or(Error::BadArgument)?;
        if let Key::Stack(space) | Key::Turn(space, _) = key {
            self.known_space(u64::from(space)).ok_or(Error::BadArgument)?;
        }
        Ok(key)
    }

    fn known_frame(&self, number: u64) -> Result<Frame, Error> {
        let number = u32::try_from(number).map_err(|_| Error::BadArgument)?;
        self.frames().find(number).ok_or(Error::BadArgument)
    }

    /// Entries of a leaf that have a frame each.
    fn known_entries(&self, leaf: u64, index: u64, count: u64) -> Result<(Leaf, Range<usize>), Error> {
        let (leaf, entries) = (Leaf::named(self.known_frame(leaf)?), known_range(index, count)?);
        for index in entries.clone() {
            let entry = self.leaf_get(leaf, index).ok_or(Error::BadArgument)?;
            self.known_frame(u64::from(entry.frame.number()))?;
        }
        Ok((leaf, entries))
    }

    fn known_space(&self, number: u64) -> Option<SpaceId> {
        let space = SpaceId(u32::try_from(number).ok()?);
        self.spaces().exists(space).then_some(space)
    }

    fn known_thread(&self, number: u64) -> Result<ThreadId, Error> {
        let thread = ThreadId(number);
        self.threads().find(thread).map(|_| thread).ok_or(Error::NoSuchThread)
    }
}

/// Entries that a leaf has.
fn known_range(index: u64, count: u64) -> Result<Range<usize>, Error> {
    let end = index.checked_add(count).filter(|&end| end <= PAGES_PER_SLOT);
    end.map(|end| index as usize..end as usize).ok_or(Error::BadArgument)
}

fn known_slot(slot: u64) -> Result<u64, Error> {
    if slot < USER_END / SLOT {
        Ok(slot)
    } else {
        Err(Error::BadArgument)
    }
}

fn known_length(bytes: u64) -> Result<usize, Error> {
    match usize::try_from(bytes) {
        Ok(length) if length <= PAGE_BYTES => Ok(length),
        _ => Err(Error::BadArgument),
    }
}
