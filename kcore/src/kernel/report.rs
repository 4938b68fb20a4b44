//! The kernel's reports in the debugger. They change nothing.
//!
//! Everything is written straight to `out`, without an allocation, so that it also works when memory is what is wrong.
//! A thread is named by its place and version (`7.2`), a frame by its number.

use core::{fmt, sync::atomic::Ordering::Relaxed};

use abi::{
    Call, Rights,
    address::{PAGE, SLOT},
};

use super::Kernel;
use crate::{
    Frame, Half, Hardware, SpaceId,
    debugger::{Command, ThreadName},
    frames::Use,
    paging::{PageEntry, decode_link, decode_page, frame_of, is_large, is_present},
    scheduler::{LEVELS, NONE},
    smp::Processor,
    space::Space,
    thread::{Name, State, Thread, VectorState},
};

/// Places of a frame that are shown at most.
const USES_SHOWN: usize = 40;
/// Entries of a root that are the user's half.
const USER_ENTRIES: usize = 256;

type Out<'a> = &'a mut dyn fmt::Write;

/// A leaf where it is linked.
struct LinkedLeaf {
    address: u64,
    leaf: Frame,
    rights: Rights,
}

impl<H: Hardware, P: Half> Kernel<H, P> {
    /// Answers a command that looks at the kernel; others get no answer.
    ///
    /// # Errors
    /// The error of `out`.
    pub fn report(&self, command: Command, out: &mut dyn fmt::Write) -> fmt::Result {
        match command {
            Command::Threads => self.report_threads(out),
            Command::Registers(thread) => self.report_registers(thread, out),
            Command::Spaces => self.report_spaces(out),
            Command::Space(space) => self.report_space(space, out),
            Command::Page { space, address } => self.report_page(space, address, out),
            Command::Mapping(frame) => self.report_mapping(frame, out),
            Command::Queues => self.report_queues(out),
            Command::Memory => self.report_memory(out),
            Command::Nothing
            | Command::Help
            | Command::Trace(_)
            | Command::Stop
            | Command::Continue
            | Command::Panic => Ok(()),
        }
    }

    fn living(&self) -> impl Iterator<Item = &Thread> {
        self.threads.table.iter().filter(|thread| thread.state != State::Free)
    }

    fn report_threads(&self, out: Out<'_>) -> fmt::Result {
        writeln!(
            out,
            "thread     priority  space  depth    time ms         instruction  state"
        )?;
        for thread in self.living() {
            let (index, version) = (thread.id.index(), thread.id.0 >> 16);
            let ms = thread.time_ns / 1_000_000;
            let rip = thread.context.rip;
            write!(
                out,
                "{index:>5}.{version:<5}{:>6}  {:>5}  {:>5}  {ms:>9}  {rip:#018x}  ",
                thread.standing.priority(),
                thread.space.0,
                thread.depth
            )?;
            write_state(thread, out)?;
            writeln!(out)?;
        }
        writeln!(out, "{} threads", self.living().count())
    }

    fn report_registers(&self, wanted: ThreadName, out: Out<'_>) -> fmt::Result {
        let found = self.threads.table.get(wanted.index as usize).filter(|thread| {
            thread.state != State::Free && wanted.version.is_none_or(|version| version == thread.id.0 >> 16)
        });
        let Some(thread) = found else {
            return writeln!(out, "no such thread now; 'threads' lists them");
        };
        write!(out, "thread {}, ", Name(thread.id))?;
        write_state(thread, out)?;
        writeln!(out)?;
        if thread.state == State::Running {
            writeln!(
                out,
                "of a running thread these are the registers when it last came in by a trap:"
            )?;
        }
        for (number, (name, value)) in thread.context.whole().named().enumerate() {
            let end = if number % 4 == 3 { "\n" } else { "" };
            write!(out, "{name:>8} {value:016x}{end}")?;
        }
        writeln!(out)?;
        writeln!(
            out,
            "vector unit {}; inside {} portal calls, in space {}",
            if thread.vectors == VectorState::UNUSED {
                "unused"
            } else {
                "in use"
            },
            thread.depth,
            thread.space.0
        )?;
        for frame in thread.frames[..thread.depth as usize].iter().rev() {
            writeln!(
                out,
                "  returns to {:#x} in space {}, stack {:#x}",
                frame.rip, frame.space.0, frame.rsp
            )?;
        }
        Ok(())
    }

    fn report_spaces(&self, out: Out<'_>) -> fmt::Result {
        writeln!(out, "   space        root  tables   links  free stacks  threads")?;
        for (id, space) in self.spaces.live() {
            let threads = self.living().filter(|thread| thread.space == id).count();
            writeln!(
                out,
                "{:>8}  {:#010x}  {:>6}  {:>6}  {:>11}  {threads:>7}{}",
                id.0,
                space.root().number(),
                space.table_count(),
                space.link_count(),
                space.free_stacks().len(),
                if space.stacks_wanted() == 0 {
                    ""
                } else {
                    "  (threads wait for a stack)"
                }
            )?;
        }
        writeln!(out, "{} spaces", self.spaces.live().count())
    }

    fn find_space(&self, number: u32) -> Option<&Space> {
        self.spaces
            .live()
            .find_map(|(id, space)| (id == SpaceId(number)).then_some(space))
    }

    fn report_space(&self, number: u32, out: Out<'_>) -> fmt::Result {
        let Some(space) = self.find_space(number) else {
            return writeln!(out, "no such space now; 'spaces' lists them");
        };
        writeln!(
            out,
            "space {number}: root {:#x}, {} tables, {} links",
            space.root().number(),
            space.table_count(),
            space.link_count()
        )?;
        for stack in space.free_stacks() {
            writeln!(out, "  a free stack, top {stack:#x}")?;
        }
        writeln!(out, "         address        leaf  rights  pages  linked")?;
        for link in self.links(space) {
            let pages = self
                .hardware
                .table(link.leaf)
                .iter()
                .filter(|entry| is_present(entry.load(Relaxed)))
                .count();
            // One reference of the leaf is its own.
            let links = self.frames.references(link.leaf).saturating_sub(1);
            writeln!(
                out,
                "{:#016x}  {:#010x}  {:>6}  {pages:>5}  {links:>6}",
                link.address,
                link.leaf.number(),
                link.rights
            )?;
        }
        Ok(())
    }

    /// The links of a space, by address: leaves, so no pages of 2 MiB and more, which only free spaces have.
    fn links(&self, space: &Space) -> impl Iterator<Item = LinkedLeaf> {
        let below = |table: Frame, entries: usize| {
            self.hardware.table(table)[..entries]
                .iter()
                .enumerate()
                .filter_map(|(index, entry)| {
                    let entry = entry.load(Relaxed);
                    (is_present(entry) && !is_large(entry)).then_some((index as u64, entry))
                })
        };
        below(space.root(), USER_ENTRIES).flat_map(move |(first, entry)| {
            below(frame_of(entry), 512).flat_map(move |(second, entry)| {
                below(frame_of(entry), 512).filter_map(move |(third, entry)| {
                    let (leaf, rights) = decode_link(entry)?;
                    Some(LinkedLeaf {
                        address: (first << 18 | second << 9 | third) * SLOT,
                        leaf,
                        rights,
                    })
                })
            })
        })
    }

    fn report_page(&self, number: u32, address: u64, out: Out<'_>) -> fmt::Result {
        let Some(space) = self.find_space(number) else {
            return writeln!(out, "no such space now; 'spaces' lists them");
        };
        let slot = address / SLOT * SLOT;
        let Some(link) = self.links(space).find(|link| link.address == slot) else {
            return writeln!(out, "nothing is linked at {slot:#x} in space {number}");
        };
        writeln!(out, "linked: leaf {:#x}, {}", link.leaf.number(), link.rights)?;
        let index = (address % SLOT / PAGE) as usize;
        match decode_page(self.hardware.table(link.leaf)[index].load(Relaxed)) {
            Some(page) => writeln!(
                out,
                "resident: frame {:#x}, {}; {} references",
                page.frame.number(),
                Page(page),
                self.frames.references(page.frame)
            ),
            None => writeln!(out, "the page is not resident"),
        }
    }

    fn report_mapping(&self, frame: u32, out: Out<'_>) -> fmt::Result {
        write!(out, "frame {:#x}, address {:#x}: ", frame, u64::from(frame) * PAGE)?;
        match self.frames.look(frame) {
            Use::Counted(references) => writeln!(out, "{references} references")?,
            Use::Free => writeln!(out, "free")?,
            Use::Zeroed => writeln!(out, "free, known to be zero")?,
            Use::Untouched => writeln!(out, "free, never used yet")?,
            Use::Outside => writeln!(out, "not handed out: σ₀'s, the kernel's own, a device's, or no memory")?,
        }
        // The tree knows free spaces; the server's links stand in tables alone.
        if self.half.report(frame, out)? > 0 || self.frames.look(frame) == Use::Outside {
            return Ok(());
        }
        let mut uses = 0;
        for (id, space) in self.spaces.live() {
            if space.root().number() == frame {
                uses += 1;
                writeln!(out, "  the root of space {}", id.0)?;
            }
            for link in self.links(space) {
                if link.leaf.number() == frame {
                    uses += 1;
                    if uses <= USES_SHOWN {
                        writeln!(
                            out,
                            "  the leaf at {:#x} in space {}, {}",
                            link.address, id.0, link.rights
                        )?;
                    }
                }
                for (index, entry) in self.hardware.table(link.leaf).iter().enumerate() {
                    let Some(page) = decode_page(entry.load(Relaxed)).filter(|page| page.frame.number() == frame)
                    else {
                        continue;
                    };
                    uses += 1;
                    if uses <= USES_SHOWN {
                        writeln!(
                            out,
                            "  {:#x} in space {} ({}), the page {}",
                            link.address + index as u64 * PAGE,
                            id.0,
                            link.rights,
                            Page(page)
                        )?;
                    }
                }
            }
        }
        match uses {
            0 => writeln!(out, "  in no space"),
            _ if uses > USES_SHOWN => writeln!(out, "  and {} more", uses - USES_SHOWN),
            _ => Ok(()),
        }
    }

    fn report_queues(&self, out: Out<'_>) -> fmt::Result {
        for part in self.parts() {
            self.report_processor(part, out)?;
        }
        for thread in self.living() {
            if let State::Parked(key) = thread.state {
                writeln!(out, "parked: {} for {key}", Name(thread.id))?;
            }
        }
        let now = self.hardware.now_ns();
        for (_, index) in self.timers.iter() {
            let thread = self.thread(index);
            let (Some(at_ns), name) = (thread.deadline(), Name(thread.id)) else {
                continue;
            };
            match at_ns.checked_sub(now) {
                Some(wait) => writeln!(out, "timer: {name} in {} us", wait / 1000)?,
                None => writeln!(out, "timer: {name} is {} us late", (now - at_ns) / 1000)?,
            }
        }
        Ok(())
    }

    fn report_processor(&self, processor: &Processor, out: Out<'_>) -> fmt::Result {
        write!(out, "processor {}: ", processor.number)?;
        match processor.current {
            _ if !processor.runs => writeln!(out, "not started")?,
            NONE => writeln!(out, "nobody runs")?,
            index => writeln!(out, "{} runs", Name(self.id_of(index)))?,
        }
        for level in (0..LEVELS as u8).rev() {
            let mut members = processor.queues.members(&self.links, level).peekable();
            if members.peek().is_none() {
                continue;
            }
            let (priority, half) = (level % 8, if level < 8 { ", behind" } else { "" });
            write!(out, "  ready at priority {priority}{half}:")?;
            for index in members {
                write!(out, " {}", Name(self.id_of(index)))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn report_memory(&self, out: Out<'_>) -> fmt::Result {
        let (used, free) = self.hardware.heap();
        let kib = |frames: u64| frames * PAGE / 1024;
        writeln!(
            out,
            "frames    {:>9} of {} free ({} KiB), {} of them known to be zero",
            self.frames.free(),
            self.frames.total(),
            kib(self.frames.free()),
            self.frames.zeroed_ready()
        )?;
        writeln!(
            out,
            "kernel    {:>9} frames of its own ({} KiB)",
            self.hardware.kernel_frames() + self.frames.kept(),
            kib(self.hardware.kernel_frames() + self.frames.kept())
        )?;
        writeln!(
            out,
            "heap      {:>9} KiB in use, {} KiB may still be taken",
            used / 1024,
            free / 1024
        )?;
        writeln!(
            out,
            "threads   {:>9}\nspaces    {:>9}",
            self.living().count(),
            self.spaces.live().count()
        )
    }
}

fn write_state(thread: &Thread, out: Out<'_>) -> fmt::Result {
    match thread.state {
        State::Parked(key) => write!(out, "waits for {key}")?,
        State::Free => write!(out, "free")?,
        State::Ready => write!(out, "ready")?,
        State::Running => write!(out, "running on processor {}", thread.processor)?,
        State::Suspended => write!(out, "suspended")?,
        State::Sending(to) => write!(out, "waits to send to the thread in place {to}")?,
        State::Receiving => write!(out, "waits for a message")?,
    }
    if let Some(operation) = thread.operation {
        match Call::from_number(operation.number) {
            Some(call) => write!(out, ", in {call:?}")?,
            None => write!(out, ", in call {}", operation.number)?,
        }
    }
    Ok(())
}

/// A page's limits and marks.
struct Page(PageEntry);

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(page) = self;
        write!(f, "{}", page.limits)?;
        for (set, text) in [
            (page.write_withheld, ", writing withheld"),
            (page.accessed, ", accessed"),
            (page.dirty, ", dirty"),
        ] {
            if set {
                f.write_str(text)?;
            }
        }
        Ok(())
    }
}
