//! `gond send`: the difference of two snapshots of an image, or a whole state, as a stream (`store/src/stream.rs`) on standard output.

use crate::arguments::{self, misused};
use crate::disk::lock_image;
use crate::display::Job;
use crate::volume::{self, Page, Volume};
use anyhow::{Result, anyhow, bail};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{MountError, Named, ObjectRecord, SnapshotName, StreamError, StreamHead, StreamItem, StreamWriter};

/// Pages of an object that are compared at a time.
const PIECE: usize = 4096;
/// Bytes that go to the pipe at once.
const BUFFER: usize = 1 << 18;

/// Runs `gond send`.
pub fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    use lexopt::prelude::*;
    let usage = |error: lexopt::Error| misused("send", error);
    let mut parser = lexopt::Parser::from_args(arguments);
    let (mut path, mut from, mut name) = (None, None, None);
    while let Some(argument) = parser.next().map_err(usage)? {
        match argument {
            Long("from") => {
                let value = parser.value().map_err(usage)?;
                from = Some(arguments::snapshot("send", &value)?);
            }
            Value(word) if path.is_none() => path = Some(PathBuf::from(word)),
            Value(word) if name.is_none() => name = Some(arguments::snapshot("send", &word)?),
            other => return Err(misused("send", other.unexpected())),
        }
    }
    let path = path.ok_or_else(|| misused("send", "'send' takes IMAGE, and perhaps SNAPSHOT"))?;
    if std::io::stdout().is_terminal() {
        return Err(misused(
            "send",
            "a stream is no text: send it to a file ('> FILE') or a program ('| ...')",
        ));
    }
    // Nobody may change the image while it is read.
    let _lock = lock_image(&path)?;
    let mut out = BufWriter::with_capacity(BUFFER, std::io::stdout().lock());
    send(&path, from.as_ref(), name.as_ref(), &mut out)?;
    Ok(ExitCode::SUCCESS)
}

/// A stream on its way.
struct Sending<'a, W> {
    writer: StreamWriter,
    out: &'a mut W,
}

impl<W: Write> Sending<'_, W> {
    fn put(&mut self, item: &StreamItem<'_>) -> Result<()> {
        let bytes = self.writer.item(item).map_err(|error| anyhow!("{error}"))?;
        self.out.write_all(bytes).map_err(|error| not_taken(&error))
    }
}

fn not_taken(error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!("the reader of the stream went away before its end: it has no whole stream"),
        _ => anyhow!("cannot write the stream: {error}"),
    }
}

/// Writes the stream of a snapshot, or of the state, to `out`: the difference from another snapshot if one is named.
pub fn send(path: &Path, from: Option<&SnapshotName>, name: Option<&SnapshotName>, out: &mut impl Write) -> Result<()> {
    let mut job = Job::begin("sending");
    let mut now = Volume::open_at(path, name)?;
    require_whole(&now, path)?;
    let mut before = from.map(|from| Volume::open_snapshot(path, from)).transpose()?;
    if let Some(before) = &before {
        require_whole(before, path)?;
    }
    let all = Volume::open(path)?.snapshots();
    let find = |name: &SnapshotName| all.iter().find(|one| one.name == *name);
    let found = |name: &SnapshotName| find(name).ok_or_else(|| volume::missing(path, name));
    let named = |one: &store::Snapshot| Named {
        name: one.name,
        identity: one.identity,
    };
    let target = name.map(found).transpose()?;
    let base = from.map(found).transpose()?;
    let records = [before.as_ref().map_or(Vec::new(), Volume::objects), now.objects()];
    let (store, _) = now.parts();
    let head = StreamHead {
        address_bits: abi::address::ADDRESS_BITS,
        blocks: store.stats().blocks,
        objects: records[1].len() as u64,
        births: store.births(),
        high_water: store.high_water(),
        target: target.map(|one| (named(one), one.time)),
        base: base.map(named),
    };
    let mut sending = Sending {
        writer: StreamWriter::new().map_err(|error: StreamError| anyhow!("{error}"))?,
        out,
    };
    let bytes = sending.writer.head(&head).map_err(|error| anyhow!("{error}"))?;
    sending.out.write_all(bytes).map_err(|error| not_taken(&error))?;
    let bases: BTreeSet<u64> = records[1].iter().map(|record| record.base).collect();
    for gone in records[0].iter().filter(|record| !bases.contains(&record.base)) {
        sending.put(&StreamItem::Delete(gone.base))?;
    }
    let total = records[1].len();
    for (number, record) in records[1].iter().enumerate() {
        job.step_on_terminal(&format!("{number} of {total} objects"));
        send_object(&mut sending, &mut now, before.as_mut(), record, &mut job)?;
    }
    sending.put(&StreamItem::End)?;
    sending.out.flush().map_err(|error| not_taken(&error))
}

/// Refuses a state of which something is not known.
fn require_whole(volume: &Volume, path: &Path) -> Result<()> {
    let report = volume.report();
    if report.losses.is_empty() {
        return Ok(());
    }
    bail!(
        "{} has lost something that was stable: './gond check {0}' tells what, and a stream would pass it on as if nothing were missing",
        path.display()
    )
}

/// Sends an object if it differs from what it was.
fn send_object(
    sending: &mut Sending<'_, impl Write>,
    now: &mut Volume,
    before: Option<&mut Volume>,
    record: &ObjectRecord,
    job: &mut Job,
) -> Result<()> {
    let base = record.base;
    let is_difference = before.is_some();
    // Another object at the same address is another object.
    let was = before.as_ref().and_then(|before| before.object(base));
    let was = was.filter(|was| was.birth == record.birth);
    let mut before = before.filter(|_| was.is_some());
    let mut told = was.as_ref() != Some(record);
    if told {
        sending.put(&StreamItem::Object(record.clone()))?;
    }
    let pages_before = was.map_or(0, |was| was.pages);
    let (mut from, mut clear) = (0, 0..0);
    while let Some(found) = differing(now, base, before.as_deref_mut(), from)? {
        for &page in &found {
            from = page + 1;
            let is = normal(now.page(base, page)?);
            let was = match &mut before {
                Some(before) if page < pages_before => normal(before.page(base, page)?),
                _ => normal(Page {
                    content: None,
                    limits: None,
                }),
            };
            if is.content == was.content && is.limits == was.limits {
                continue;
            }
            if !told {
                sending.put(&StreamItem::Object(record.clone()))?;
                told = true;
            }
            if is.content.is_none() && is.limits.is_none() {
                if page != clear.end {
                    put_clear(sending, &mut clear)?;
                    clear = page..page;
                }
                clear.end = page + 1;
                continue;
            }
            put_clear(sending, &mut clear)?;
            let limits = is.limits.unwrap_or_default();
            let item = match &is.content {
                Some(content) => {
                    let content = Some(&**content).filter(|content| content.iter().any(|&byte| byte != 0));
                    StreamItem::Page(page, limits, content)
                }
                None => StreamItem::Limit(page, limits),
            };
            sending.put(&item)?;
        }
        job.step_on_terminal(&format!("{} pages of an object", found.len()));
    }
    debug_assert!(is_difference || clear.is_empty(), "a whole state clears nothing");
    put_clear(sending, &mut clear)
}

/// Tells of pages that are zero now.
fn put_clear(sending: &mut Sending<'_, impl Write>, clear: &mut std::ops::Range<u64>) -> Result<()> {
    let gone = std::mem::replace(clear, 0..0);
    if gone.is_empty() {
        return Ok(());
    }
    sending.put(&StreamItem::Clear(gone.start, gone.end))
}

/// A page without contents has limits only if they say something.
fn normal(mut page: Page) -> Page {
    if page.content.is_none() {
        page.limits = page.limits.filter(|limits| !limits.is_empty());
    }
    page
}

/// The next pages from one on in which an object may differ from what it was before, or from nothing; `None` if there are none.
pub fn differing(now: &mut Volume, base: u64, before: Option<&mut Volume>, from: u64) -> Result<Option<Vec<u64>>> {
    let before = before.map(|before| &*before.parts().0);
    let (store, world) = now.parts();
    let found = store.differing_pages(world, base, before, (from, PIECE));
    let found = found.map_err(|error| unread(now.path(), base, error))?;
    Ok((!found.is_empty()).then_some(found))
}

fn unread(path: &Path, base: u64, error: MountError) -> anyhow::Error {
    anyhow!(
        "{}: the page map of the object at {base:#x} cannot be read: {error}; './gond check {0}' tells more",
        path.display()
    )
}
