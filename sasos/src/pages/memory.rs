//! User memory as the server reads and writes it: through the page tables' own truth, never by
//! dereferencing.
//!
//! An access on behalf of a domain is validated like one that the domain makes itself. Reading
//! makes no page resident that was never written. Writing first makes every page of the range fit
//! and only then copies, so that a call that must wait has written nothing.

use abi::{Error, Rights, address::PAGE};
use kcore::{Frame, SpaceId};

use crate::{Access, Server, Step, World, directory::object::ObjectId, lives::budget::Cost, pages::pager::index_of};

/// The cost of finding the frame of a page, in instructions, roughly.
const COST_PAGE: Cost = Cost::calling(310, 1);

/// The part of a range that lies in one page.
#[derive(Copy, Clone)]
struct Piece {
    address: u64,
    /// Its place in the whole.
    at: usize,
    bytes: usize,
}

/// Cuts a range at page borders.
fn pieces(address: u64, bytes: usize) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let piece_address = address + at as u64;
        let left = bytes - at;
        let piece = Piece {
            address: piece_address,
            at,
            bytes: left.min((PAGE - piece_address % PAGE) as usize),
        };
        at += piece.bytes;
        (left > 0).then_some(piece)
    })
}

/// Copies the part of a range from its frame; without one it is zeroes.
fn copy_out(world: &impl World, frame: Option<Frame>, piece: Piece, into: &mut [u8]) {
    let target = &mut into[piece.at..piece.at + piece.bytes];
    match frame {
        Some(frame) => world.frame_read(frame, (piece.address % PAGE) as usize, target),
        None => target.fill(0),
    }
}

/// A page that was read, and where it is: nowhere if it is zeroes. It counts within the event.
#[derive(Copy, Clone)]
pub struct Seen {
    page: u64,
    frame: Option<Frame>,
}

/// Refuses a range that wraps around.
fn check(address: u64, bytes: usize) -> Result<(), Error> {
    address.checked_add(bytes as u64).map(|_| ()).ok_or(Error::BadAddress)
}

impl Server {
    /// Reads memory as a domain would.
    ///
    /// # Errors
    /// [`Error::BadAddress`], [`Error::Protection`], [`Error::DiskError`]; the need to wait.
    pub fn read_user<W: World>(&mut self, world: &mut W, space: SpaceId, address: u64, into: &mut [u8]) -> Step<()> {
        check(address, into.len())?;
        for piece in pieces(address, into.len()) {
            let id = self.require_at(world, space, piece.address, Rights::R)?;
            self.read_piece(world, id, piece, into)?;
        }
        Ok(())
    }

    /// Makes sure that a domain may write a range, and that writing it cannot fail.
    ///
    /// # Errors
    /// Those of a write access, and the need to wait.
    pub fn prepare_write<W: World>(&mut self, world: &mut W, space: SpaceId, address: u64, bytes: usize) -> Step<()> {
        check(address, bytes)?;
        for piece in pieces(address, bytes) {
            let id = self.require_at(world, space, piece.address, Rights::W)?;
            self.present(world, id, piece.address, Access::Write)?;
        }
        Ok(())
    }

    /// Writes memory as a domain would: all of it or nothing.
    ///
    /// # Errors
    /// Those of [`Server::prepare_write`].
    pub fn write_user<W: World>(&mut self, world: &mut W, space: SpaceId, address: u64, from: &[u8]) -> Step<()> {
        self.prepare_write(world, space, address, from.len())?;
        for piece in pieces(address, from.len()) {
            let id = self.require_at(world, space, piece.address, Rights::W)?;
            self.write_piece(world, id, piece, from)?;
        }
        Ok(())
    }

    /// Reads bytes of an object by their offset, whatever the rights: for what the server itself
    /// interprets. Beyond the object there are zeroes. `seen` is the page that the same event has read last, if any.
    ///
    /// # Errors
    /// [`Error::DiskError`]; the need to wait.
    pub fn read_object<W: World>(
        &mut self,
        world: &mut W,
        id: ObjectId,
        offset: u64,
        into: &mut [u8],
        seen: &mut Option<Seen>,
    ) -> Step<()> {
        let object = self.objects.get(id);
        let (base, end) = (object.base(), object.end());
        let address = base.saturating_add(offset);
        let place = address % PAGE;
        // A search reads some words at a time, and mostly of the page that it has seen.
        if let Some(known) = seen.filter(|known| known.page == address - place)
            && place + into.len() as u64 <= PAGE
            && address.saturating_add(into.len() as u64) <= end
        {
            let piece = Piece {
                address,
                at: 0,
                bytes: into.len(),
            };
            copy_out(world, known.frame, piece, into);
            return Ok(());
        }
        for piece in pieces(address, into.len()) {
            if piece.address >= end {
                into[piece.at..].fill(0);
                break;
            }
            let page = piece.address - piece.address % PAGE;
            let frame = match *seen {
                Some(seen) if seen.page == page => seen.frame,
                _ => {
                    self.budget.spend(COST_PAGE);
                    // The page that was seen before may be taken from memory meanwhile, so it is forgotten first.
                    *seen = None;
                    let frame = self.peek(world, id, page)?.map(|entry| entry.frame);
                    *seen = Some(Seen { page, frame });
                    frame
                }
            };
            copy_out(world, frame, piece, into);
        }
        Ok(())
    }

    fn read_piece<W: World>(&mut self, world: &mut W, id: ObjectId, piece: Piece, into: &mut [u8]) -> Step<()> {
        let frame = self.peek(world, id, piece.address)?.map(|entry| entry.frame);
        copy_out(world, frame, piece, into);
        Ok(())
    }

    fn write_piece<W: World>(&mut self, world: &mut W, id: ObjectId, piece: Piece, from: &[u8]) -> Step<()> {
        let place = self.present(world, id, piece.address, Access::Write)?;
        if let Some(entry) = world.leaf_get(place.leaf, index_of(piece.address)) {
            world.frame_write(
                entry.frame,
                (piece.address % PAGE) as usize,
                &from[piece.at..piece.at + piece.bytes],
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_page_borders() {
        let cut: Vec<_> = pieces(4090, 10)
            .map(|piece| (piece.address, piece.at, piece.bytes))
            .collect();
        assert_eq!(cut, [(4090, 0, 6), (4096, 6, 4)]);
        assert_eq!(pieces(0, 0).count(), 0);
        assert_eq!(pieces(8192, 8192).count(), 2);
        assert!(check(u64::MAX, 2).is_err());
    }
}
