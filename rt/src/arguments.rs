//! The program's arguments, as they stand on the start page: UTF-8, each ended by a zero byte.

use crate::{Cell, object};

/// All arguments; the first is the program's name. An argument that is not UTF-8 reads as empty.
pub fn all() -> impl Iterator<Item = &'static str> + Clone {
    split(object::own_arguments())
}

/// The program's name.
pub fn program() -> &'static str {
    all().next().unwrap_or("program")
}

/// The arguments behind the program's name.
pub fn rest() -> impl Iterator<Item = &'static str> + Clone {
    all().skip(1)
}

/// The word that the creator of the task put beside the arguments.
pub fn word() -> u64 {
    object::own_start().map_or(0, |start| start.word)
}

fn split(bytes: &[u8]) -> impl Iterator<Item = &str> + Clone {
    let text = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    let any = !bytes.is_empty();
    text.split(|byte| *byte == 0)
        .filter(move |_| any)
        .map(|bytes| core::str::from_utf8(bytes).unwrap_or(""))
}

/// Writes arguments as a start page holds them; none if they do not fit or one holds a zero byte.
/// Gives how many there are and how many bytes they take.
pub(crate) fn join<'a>(arguments: impl Iterator<Item = &'a str>, into: &[Cell<u8>]) -> Option<(usize, usize)> {
    let (mut count, mut length) = (0, 0);
    for argument in arguments {
        if argument.as_bytes().contains(&0) {
            return None;
        }
        let place = into.get(length..length + argument.len() + 1)?;
        for (place, byte) in place.iter().zip(argument.bytes().chain([0])) {
            place.set(byte);
        }
        count += 1;
        length += argument.len() + 1;
    }
    Some((count, length))
}

#[cfg(test)]
mod tests {
    use super::{Cell, join, split};

    fn room(bytes: usize) -> Vec<Cell<u8>> {
        (0..bytes).map(|_| Cell::new(9)).collect()
    }

    #[test]
    fn what_is_joined_comes_apart_again() {
        for arguments in [&["a", "bc", ""][..], &[], &[""], &["größe", "x y"]] {
            let room = room(64);
            let (count, length) = join(arguments.iter().copied(), &room).unwrap();
            let bytes: Vec<u8> = room.iter().map(Cell::get).collect();
            assert_eq!(count, arguments.len());
            assert_eq!(split(&bytes[..length]).collect::<Vec<_>>(), arguments);
        }
    }

    #[test]
    fn too_much_and_zero_bytes_are_refused() {
        assert_eq!(join(["abc"].into_iter(), &room(4)), Some((1, 4)));
        assert_eq!(join(["abcd"].into_iter(), &room(4)), None);
        assert_eq!(join(["a\0"].into_iter(), &room(4)), None);
    }
}
