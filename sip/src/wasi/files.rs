//! The calls on descriptors and paths.

use super::descriptors::{Descriptor, What, rights};
use super::system::{At, Errno, How, Kind, Stat, System, Time};
use super::{Call, Process, VECTORS};
use alloc::{string::String, vec::Vec};

/// Bytes of a path at most.
const PATH_BYTES: u64 = 4096;

const APPEND: u16 = 1;
const NONBLOCKING: u16 = 4;
const SYNCHRONOUS: u16 = 2 | 16;

type Done = Result<(), Errno>;

/// Answers a call of this name; `None` if it is none of these.
pub fn answer<S: System>(process: &mut Process<S>, name: &str, call: &mut Call<'_>) -> Option<Done> {
    Some(match name {
        "fd_close" => close(process, call),
        "fd_read" => transfer(process, call, Transfer { write: false, at: None }),
        "fd_write" => transfer(process, call, Transfer { write: true, at: None }),
        "fd_pread" => positioned(process, call, false),
        "fd_pwrite" => positioned(process, call, true),
        "fd_seek" => seek(process, call),
        "fd_tell" => tell(process, call),
        "fd_datasync" | "fd_sync" => sync(process, call),
        "fd_advise" => advise(process, call),
        "fd_allocate" => allocate(process, call),
        "fd_fdstat_get" => describe(process, call),
        "fd_fdstat_set_flags" => set_flags(process, call),
        "fd_fdstat_set_rights" => set_rights(process, call),
        "fd_filestat_get" => stat(process, call),
        "fd_filestat_set_size" => set_size(process, call),
        "fd_filestat_set_times" => set_times(process, call),
        "fd_prestat_get" => prestat(process, call),
        "fd_prestat_dir_name" => prestat_name(process, call),
        "fd_readdir" => read_directory(process, call),
        "fd_renumber" => renumber(process, call),
        "path_open" => open(process, call),
        "path_filestat_get" => path_stat(process, call),
        "path_filestat_set_times" => path_set_times(process, call),
        "path_create_directory" => on_path(process, call, S::create_directory),
        "path_remove_directory" => on_path(process, call, S::remove_directory),
        "path_unlink_file" => on_path(process, call, S::unlink),
        "path_rename" => rename(process, call),
        "path_link" => link(process, call),
        "path_symlink" => symlink(process, call),
        "path_readlink" => read_link(process, call),
        "sock_accept" | "sock_recv" | "sock_send" | "sock_shutdown" => {
            process.descriptors.get(call.arg(0)).and(Err(Errno::NotSocket))
        }
        _ => return None,
    })
}

// ---- descriptors ----

fn close<S: System>(process: &mut Process<S>, call: &Call<'_>) -> Done {
    let closed = process.descriptors.remove(call.arg(0))?;
    forget(process, &closed);
    Ok(())
}

fn forget<S: System>(process: &mut Process<S>, closed: &Descriptor) {
    if let What::File(file) = closed.what {
        process.system.close(file);
    }
}

fn renumber<S: System>(process: &mut Process<S>, call: &Call<'_>) -> Done {
    if let Some(old) = process.descriptors.renumber(call.arg(0), call.arg(1))? {
        forget(process, &old);
    }
    Ok(())
}

/// Which way, and from which position if not the descriptor's own.
#[derive(Clone, Copy)]
struct Transfer {
    write: bool,
    at: Option<u64>,
}

fn positioned<S: System>(process: &mut Process<S>, call: &mut Call<'_>, write: bool) -> Done {
    let at = Some(call.arg(3));
    match process.descriptors.get(call.arg(0))?.what {
        What::Stream(_) => Err(Errno::Seek),
        What::File(_) => transfer(process, call, Transfer { write, at }),
    }
}

fn transfer<S: System>(process: &mut Process<S>, call: &mut Call<'_>, Transfer { write, at }: Transfer) -> Done {
    let (array, count) = (call.arg(1), call.arg(2));
    let done_at = call.arg(if at.is_some() { 4 } else { 3 });
    if count > VECTORS {
        return Err(Errno::Invalid);
    }
    let descriptor = process.descriptors.get(call.arg(0))?;
    let wanted = if write { rights::WRITE } else { rights::READ };
    if descriptor.base & wanted == 0 || descriptor.kind == Kind::Directory {
        return Err(Errno::BadDescriptor);
    }
    let mut position = at.unwrap_or(descriptor.position);
    if let (What::File(file), true, None) = (descriptor.what, write && descriptor.flags & APPEND != 0, at) {
        position = process.system.stat(file)?.size;
    }
    let mut done = 0;
    for vector in 0..count {
        let (start, length) = call.vector(array, vector)?;
        let bytes = call.bytes(start, length)?;
        let moved = match (descriptor.what, write) {
            (What::Stream(stream), true) => process.system.write(stream, bytes),
            (What::Stream(stream), false) => process.system.read(stream, bytes),
            (What::File(file), true) => process.system.write_at(file, position, bytes),
            (What::File(file), false) => process.system.read_at(file, position, bytes),
        };
        // The bytes moved so far count; the error comes again with the next call.
        let moved = match moved {
            Ok(moved) => moved,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        done += moved;
        position = position.checked_add(moved as u64).ok_or(Errno::Overflow)?;
        if (moved as u64) < length {
            break;
        }
    }
    if at.is_none() {
        descriptor.position = position;
    }
    call.put32(done_at, done)
}

fn seek<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let (by, whence, result) = (call.arg(1).cast_signed(), call.arg(2), call.arg(3));
    if matches!(process.descriptors.get(call.arg(0))?.what, What::Stream(_)) {
        return Err(Errno::Seek);
    }
    let (descriptor, file) = process.descriptors.file(call.arg(0))?;
    let from = match whence {
        0 => 0,
        1 => descriptor.position,
        2 => process.system.stat(file)?.size,
        _ => return Err(Errno::Invalid),
    };
    if descriptor.base & rights::SEEK == 0 {
        return Err(Errno::NotCapable);
    }
    let to = from.checked_add_signed(by).filter(|to| i64::try_from(*to).is_ok());
    descriptor.position = to.ok_or(Errno::Invalid)?;
    let position = descriptor.position;
    call.put(result, &position.to_le_bytes())
}

fn tell<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    if matches!(process.descriptors.get(call.arg(0))?.what, What::Stream(_)) {
        return Err(Errno::Seek);
    }
    let position = process.descriptors.file(call.arg(0))?.0.position;
    let at = call.arg(1);
    call.put(at, &position.to_le_bytes())
}

fn sync<S: System>(process: &mut Process<S>, call: &Call<'_>) -> Done {
    match process.descriptors.get(call.arg(0))?.what {
        What::Stream(_) => Ok(()),
        What::File(file) => process.system.sync(file),
    }
}

fn advise<S: System>(process: &mut Process<S>, call: &Call<'_>) -> Done {
    process.descriptors.file(call.arg(0))?;
    let fits = call.arg(1).checked_add(call.arg(2)).is_some();
    if call.arg(3) <= 5 && fits {
        Ok(())
    } else {
        Err(Errno::Invalid)
    }
}

fn allocate<S: System>(process: &mut Process<S>, call: &Call<'_>) -> Done {
    let (descriptor, file) = process.descriptors.file(call.arg(0))?;
    if descriptor.base & (rights::ALLOCATE | rights::WRITE) == 0 {
        return Err(Errno::BadDescriptor);
    }
    let end = call.arg(1).checked_add(call.arg(2)).filter(|_| call.arg(2) > 0);
    let end = end.ok_or(Errno::Invalid)?;
    if process.system.stat(file)?.size < end {
        process.system.set_size(file, end)?;
    }
    Ok(())
}

fn describe<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let descriptor = process.descriptors.get(call.arg(0))?;
    let mut bytes = [0; 24];
    bytes[0] = descriptor.kind as u8;
    bytes[2..4].copy_from_slice(&descriptor.flags.to_le_bytes());
    bytes[8..16].copy_from_slice(&descriptor.base.to_le_bytes());
    bytes[16..24].copy_from_slice(&descriptor.inheriting.to_le_bytes());
    let at = call.arg(1);
    call.put(at, &bytes)
}

fn set_flags<S: System>(process: &mut Process<S>, call: &Call<'_>) -> Done {
    let descriptor = process.descriptors.get(call.arg(0))?;
    let flags = call.arg(1) as u16;
    if flags > 31 {
        return Err(Errno::Invalid);
    }
    // Whether writes go to the disk at once is settled when a file is opened.
    if (flags ^ descriptor.flags) & !(APPEND | NONBLOCKING) != 0 {
        return Err(Errno::NotSupported);
    }
    descriptor.flags = flags;
    Ok(())
}

fn set_rights<S: System>(process: &mut Process<S>, call: &Call<'_>) -> Done {
    let descriptor = process.descriptors.get(call.arg(0))?;
    let (base, inheriting) = (call.arg(1), call.arg(2));
    if base & !descriptor.base != 0 || inheriting & !descriptor.inheriting != 0 {
        return Err(Errno::NotCapable);
    }
    (descriptor.base, descriptor.inheriting) = (base, inheriting);
    Ok(())
}

// ---- what is known of files ----

fn put_stat(call: &mut Call<'_>, at: u64, stat: &Stat) -> Done {
    let mut bytes = [0; 64];
    let words = [
        (0, stat.device),
        (8, stat.inode),
        (16, u64::from(stat.kind as u8)),
        (24, stat.links),
        (32, stat.size),
        (40, stat.times[0]),
        (48, stat.times[1]),
        (56, stat.times[2]),
    ];
    for (offset, word) in words {
        bytes[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
    }
    call.put(at, &bytes)
}

fn stat<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let descriptor = process.descriptors.get(call.arg(0))?;
    let stat = match descriptor.what {
        What::File(file) => process.system.stat(file)?,
        What::Stream(_) => Stat {
            kind: descriptor.kind,
            ..Stat::default()
        },
    };
    let at = call.arg(1);
    put_stat(call, at, &stat)
}

fn path_stat<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let (follow, result) = (call.arg(1) & 1 == 1, call.arg(4));
    let path = path(call, 2)?;
    let directory = process.descriptors.directory(call.arg(0))?.1;
    let stat = process.system.stat_path(At { directory, path: &path }, follow)?;
    put_stat(call, result, &stat)
}

fn set_size<S: System>(process: &mut Process<S>, call: &Call<'_>) -> Done {
    let (descriptor, file) = process.descriptors.file(call.arg(0))?;
    if descriptor.base & (rights::SET_SIZE | rights::WRITE) == 0 {
        return Err(Errno::BadDescriptor);
    }
    process.system.set_size(file, call.arg(1))
}

/// The two times and the flags that start at this argument.
fn times(call: &Call<'_>, first: usize) -> Result<[Time; 2], Errno> {
    let flags = call.arg(first + 2);
    if flags > 15 || flags & 0b11 == 0b11 || flags & 0b1100 == 0b1100 {
        return Err(Errno::Invalid);
    }
    let one = |set: u64, now: u64, at: usize| {
        if flags & set != 0 {
            Time::At(call.arg(at))
        } else if flags & now != 0 {
            Time::Now
        } else {
            Time::Keep
        }
    };
    Ok([one(1, 2, first), one(4, 8, first + 1)])
}

fn set_times<S: System>(process: &mut Process<S>, call: &Call<'_>) -> Done {
    let [read, written] = times(call, 1)?;
    let file = process.descriptors.any_file(call.arg(0))?;
    process.system.set_times(file, read, written)
}

fn path_set_times<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let path = path(call, 2)?;
    let [read, written] = times(call, 4)?;
    let directory = process.descriptors.directory(call.arg(0))?.1;
    let at = At { directory, path: &path };
    process.system.set_times_path(at, call.arg(1) & 1 == 1, read, written)
}

// ---- directories ----

fn prestat<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let name = process.descriptors.get(call.arg(0))?.preopen.as_ref();
    let length = name.ok_or(Errno::BadDescriptor)?.len();
    let at = call.arg(1);
    call.put32(at, 0)?;
    call.put32(at + 4, length)
}

fn prestat_name<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let name = process.descriptors.get(call.arg(0))?.preopen.clone();
    let name = name.ok_or(Errno::BadDescriptor)?;
    let (at, room) = (call.arg(1), call.arg(2));
    if (name.len() as u64) > room {
        return Err(Errno::NameTooLong);
    }
    call.put(at, name.as_bytes())
}

fn read_directory<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let (buffer, room, cookie, used_at) = (call.arg(1), call.arg(2), call.arg(3), call.arg(4));
    let (descriptor, directory) = process.descriptors.directory(call.arg(0))?;
    if descriptor.base & rights::READDIR == 0 {
        return Err(Errno::BadDescriptor);
    }
    if cookie == 0 {
        descriptor.entries = process.system.entries(directory)?;
    }
    let mut bytes = Vec::new();
    for (at, entry) in descriptor.entries.iter().enumerate().skip(cookie as usize) {
        if bytes.len() as u64 >= room {
            break;
        }
        bytes.extend_from_slice(&(at as u64 + 1).to_le_bytes());
        bytes.extend_from_slice(&entry.inode.to_le_bytes());
        bytes.extend_from_slice(&(entry.name.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&u32::from(entry.kind as u8).to_le_bytes());
        bytes.extend_from_slice(entry.name.as_bytes());
    }
    bytes.truncate(room as usize);
    call.put(buffer, &bytes)?;
    call.put32(used_at, bytes.len())
}

// ---- paths ----

/// The path whose address and length stand at these arguments.
fn path(call: &mut Call<'_>, first: usize) -> Result<String, Errno> {
    let (at, length) = (call.arg(first), call.arg(first + 1));
    if length > PATH_BYTES {
        return Err(Errno::NameTooLong);
    }
    let path = core::str::from_utf8(call.bytes(at, length)?).map_err(|_| Errno::IllegalBytes)?;
    match path {
        "" => Err(Errno::NotThere),
        path if path.contains('\0') => Err(Errno::Invalid),
        path if path.starts_with('/') => Err(Errno::NotCapable),
        path => Ok(path.into()),
    }
}

fn on_path<S: System>(
    process: &mut Process<S>,
    call: &mut Call<'_>,
    what: impl Fn(&mut S, At<'_>) -> Result<(), Errno>,
) -> Done {
    let path = path(call, 1)?;
    let directory = process.descriptors.directory(call.arg(0))?.1;
    what(&mut process.system, At { directory, path: &path })
}

fn rename<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let (from, to) = (path(call, 1)?, path(call, 4)?);
    let old = process.descriptors.directory(call.arg(0))?.1;
    let new = process.descriptors.directory(call.arg(3))?.1;
    let (from, to) = (
        At {
            directory: old,
            path: &from,
        },
        At {
            directory: new,
            path: &to,
        },
    );
    process.system.rename(from, to)
}

fn link<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let (from, to) = (path(call, 2)?, path(call, 5)?);
    let old = process.descriptors.directory(call.arg(0))?.1;
    let new = process.descriptors.directory(call.arg(4))?.1;
    // A link to what a link names is not made.
    if call.arg(1) & 1 == 1 {
        return Err(Errno::Invalid);
    }
    let (from, to) = (
        At {
            directory: old,
            path: &from,
        },
        At {
            directory: new,
            path: &to,
        },
    );
    process.system.link(from, to)
}

fn symlink<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let (target, path) = (path(call, 0)?, path(call, 3)?);
    let directory = process.descriptors.directory(call.arg(2))?.1;
    process.system.symlink(&target, At { directory, path: &path })
}

fn read_link<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let (buffer, room, used_at) = (call.arg(3), call.arg(4), call.arg(5));
    let path = path(call, 1)?;
    let directory = process.descriptors.directory(call.arg(0))?.1;
    let target = process.system.read_link(At { directory, path: &path })?;
    let bytes = &target.as_bytes()[..target.len().min(room as usize)];
    call.put(buffer, bytes)?;
    call.put32(used_at, bytes.len())
}

fn open<S: System>(process: &mut Process<S>, call: &mut Call<'_>) -> Done {
    let (opening, base, inheriting) = (call.arg(4), call.arg(5), call.arg(6));
    let (flags, result) = (call.arg(7) as u16, call.arg(8));
    let path = path(call, 2)?;
    if opening > 15 || flags > 31 {
        return Err(Errno::Invalid);
    }
    let (from, directory) = process.descriptors.directory(call.arg(0))?;
    let wanted = [opening & 2 != 0, opening & 8 != 0];
    if wanted[1] && from.base & rights::PATH_SET_SIZE == 0 {
        return Err(Errno::NotCapable);
    }
    let (base, inheriting) = (base & from.inheriting, inheriting & from.inheriting);
    let writes = base & (rights::WRITE | rights::ALLOCATE | rights::SET_SIZE) != 0;
    let how = How {
        create: opening & 1 != 0,
        directory: wanted[0],
        exclusive: opening & 4 != 0,
        truncate: wanted[1],
        follow: call.arg(1) & 1 != 0,
        read: base & (rights::READ | rights::READDIR) != 0 || !writes,
        write: writes,
        nonblocking: flags & NONBLOCKING != 0,
        synchronous: flags & SYNCHRONOUS != 0,
    };
    if how.directory && (how.create || how.truncate || how.exclusive) {
        return Err(Errno::Invalid);
    }
    let file = process.system.open(At { directory, path: &path }, how)?;
    let kind = match process.system.stat(file) {
        // Nobody writes into a directory as into a file, whether a directory was asked for or found.
        Ok(stat) if stat.kind == Kind::Directory && how.write => Err(Errno::IsDirectory),
        Ok(stat) => Ok(stat.kind),
        Err(error) => Err(error),
    };
    let kind = kind.inspect_err(|_| process.system.close(file))?;
    let can = if kind == Kind::Directory {
        rights::DIRECTORY
    } else {
        rights::FILE
    };
    let added = process.descriptors.add(Descriptor {
        what: What::File(file),
        kind,
        position: 0,
        flags,
        base: base & can,
        inheriting,
        preopen: None,
        entries: Vec::new(),
    });
    match added {
        Ok(number) => call.put32(result, number as usize),
        Err(error) => {
            process.system.close(file);
            Err(error)
        }
    }
}
