//! A process's names for its ends of channels, and the message that arrived last at each.

use super::channels::{Arrived, Channels, End, Letter, Undelivered};
use super::owners::{Block, Owners, Process};
use super::{ExchangeError, HandleTable};
use crate::limits::ENDPOINTS;
use alloc::vec::Vec;

/// The reason for which an operation on an endpoint is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointError {
    /// The number names no endpoint: forged, closed, or sent.
    Stale,
    /// The process has as many endpoints as it may have.
    Endpoints,
    /// Something of the message is wrong.
    Field(ExchangeError),
    /// An endpoint can be sent only while it is its side's turn to speak.
    NotItsTurn,
    /// There are more messages under way than the contract allows.
    Full,
}

impl EndpointError {
    /// The words for a user.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Stale => "the number names no endpoint (never given, closed, or sent)",
            Self::Endpoints => "too many endpoints in one process",
            Self::Field(error) => error.message(),
            Self::NotItsTurn => "an endpoint can be sent only while it is its side's turn to speak",
            Self::Full => "more messages under way than the contract allows",
        }
    }
}

/// Words of a message that may go past the queue, at most.
pub const SHORT_WORDS: usize = 4;

/// An endpoint of a process.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Which end of which channel.
    pub end: End,
    /// Whether a message has arrived.
    arrived: bool,
    /// The one that arrived last; its blocks and endpoints are handles of the process already.
    letter: Letter,
}

impl Endpoint {
    /// A field of the message that arrived last; `None` if that is another message.
    #[inline]
    pub fn field(&self, message: u16, field: u16) -> Option<u64> {
        let is_that = self.arrived && self.letter.message == message && field < u16::from(self.letter.count);
        is_that.then(|| self.letter.words[usize::from(field)])
    }

    /// Puts a message of a few words here that came past the queue: of each the bits of its mask. `block` says which
    /// is a block, and its handle here.
    #[inline]
    pub fn deliver(
        &mut self,
        message: u16,
        count: u8,
        words: [u64; SHORT_WORDS],
        masks: &[u64; SHORT_WORDS],
        block: Option<(usize, u32)>,
    ) {
        self.arrived = true;
        self.letter.message = message;
        self.letter.count = count;
        for at in 0..SHORT_WORDS {
            self.letter.words[at] = words[at] & masks[at];
        }
        if let Some((at, handle)) = block {
            self.letter.words[at % SHORT_WORDS] = u64::from(handle);
        }
    }
}

/// A process's endpoints. Number 0 is never given; numbers are used again as late as possible.
pub struct EndpointTable {
    process: Process,
    entries: Vec<Option<Endpoint>>,
    next: usize,
    /// How often a number was given or taken back.
    changes: u64,
}

impl EndpointTable {
    /// A table without endpoints.
    pub const fn new(process: Process) -> Self {
        Self {
            process,
            entries: Vec::new(),
            next: 0,
            changes: 0,
        }
    }

    /// The endpoint of a number.
    ///
    /// # Errors
    /// [`EndpointError::Stale`].
    #[inline]
    pub fn get(&mut self, number: u32) -> Result<&mut Endpoint, EndpointError> {
        let at = (number as usize).wrapping_sub(1);
        let entry = self.entries.get_mut(at).and_then(Option::as_mut);
        entry.ok_or(EndpointError::Stale)
    }

    /// How often a number was given or taken back: while that stays, a number names the same endpoint, at the
    /// same address.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Gives an end of the process's a number.
    ///
    /// # Errors
    /// [`EndpointError::Endpoints`]; the end stays the process's, without a name.
    pub fn enter(&mut self, end: End) -> Result<u32, EndpointError> {
        let entry = Some(Endpoint {
            end,
            arrived: false,
            letter: Letter::new(0),
        });
        self.changes += 1;
        if self.entries.len() < ENDPOINTS {
            self.entries.push(entry);
            return Ok(self.entries.len() as u32);
        }
        let free = (0..ENDPOINTS).map(|step| (self.next + step) % ENDPOINTS);
        let at = free.into_iter().find(|at| self.entries[*at].is_none());
        let at = at.ok_or(EndpointError::Endpoints)?;
        self.next = at + 1;
        self.entries[at] = entry;
        Ok(at as u32 + 1)
    }

    /// Takes a number back.
    ///
    /// # Errors
    /// [`EndpointError::Stale`].
    pub fn leave(&mut self, number: u32) -> Result<End, EndpointError> {
        let end = self.get(number)?.end;
        self.changes += 1;
        self.entries[number as usize - 1] = None;
        Ok(end)
    }

    /// Sends a message: the blocks and endpoints among its words, which are the process's handles,
    /// leave its tables. `may_travel` says of an end whether it is its side's turn to speak. Says
    /// whether the peer is there; if not, what the message carried has ended.
    ///
    /// # Errors
    /// [`EndpointError`]; blocks and ends that had left the tables by then have ended, and so should the process.
    pub fn send(
        &mut self,
        (channels, owners): (&Channels, &Owners),
        blocks: Option<&mut HandleTable>,
        from: End,
        letter: &mut Letter,
        may_travel: impl Fn(End) -> bool,
    ) -> Result<bool, EndpointError> {
        if letter.blocks | letter.ends != 0 {
            self.pack((channels, owners), blocks, letter, may_travel)?;
        }
        match channels.send(from, letter) {
            Ok(()) => Ok(true),
            Err(undelivered) => {
                channels.discard(owners, letter);
                match undelivered {
                    Undelivered::Gone => Ok(false),
                    Undelivered::Full => Err(EndpointError::Full),
                }
            }
        }
    }

    /// Handles to blocks and ends; what was packed before an error is discarded.
    fn pack(
        &mut self,
        (channels, owners): (&Channels, &Owners),
        mut blocks: Option<&mut HandleTable>,
        letter: &mut Letter,
        may_travel: impl Fn(End) -> bool,
    ) -> Result<(), EndpointError> {
        for at in 0..usize::from(letter.count) {
            let handle = letter.words[at] as u32;
            let packed = if letter.blocks >> at & 1 == 1 {
                let table = blocks.as_mut().ok_or(EndpointError::Field(ExchangeError::Stale));
                table
                    .and_then(|table| table.send(owners, handle).map_err(EndpointError::Field))
                    .map(Block::word)
            } else if letter.ends >> at & 1 == 1 {
                self.pack_end(channels, handle, &may_travel).map(End::word)
            } else {
                continue;
            };
            match packed {
                Ok(word) => letter.words[at] = word,
                Err(error) => {
                    letter.count = at as u8;
                    channels.discard(owners, letter);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn pack_end(
        &mut self,
        channels: &Channels,
        number: u32,
        may_travel: impl Fn(End) -> bool,
    ) -> Result<End, EndpointError> {
        let end = self.get(number)?.end;
        if !may_travel(end) {
            return Err(EndpointError::NotItsTurn);
        }
        self.leave(number)?;
        if channels.give(self.process, end) {
            Ok(end)
        } else {
            Err(EndpointError::Stale)
        }
    }

    /// Takes the next message to an endpoint; what it carries becomes the process's, under handles.
    ///
    /// # Errors
    /// A table is full; what found no place has ended, and so should the process.
    pub fn receive(
        &mut self,
        (channels, owners): (&Channels, &Owners),
        mut blocks: Option<&mut HandleTable>,
        number: u32,
    ) -> Result<Arrived, EndpointError> {
        let entry = self.get(number)?;
        let arrived = channels.receive(entry.end, &mut entry.letter);
        if !matches!(arrived, Arrived::Letter(_)) {
            return Ok(arrived);
        }
        entry.arrived = true;
        let mut owned = entry.letter.blocks | entry.letter.ends;
        while owned != 0 {
            let at = owned.trailing_zeros() as usize;
            owned &= owned - 1;
            let letter = &self.get(number)?.letter;
            let (word, is_block) = (letter.words[at], letter.blocks >> at & 1 == 1);
            let accepted = if is_block {
                let table = blocks.as_mut().ok_or(EndpointError::Field(ExchangeError::Stale));
                table.and_then(|table| {
                    let accepted = table.accept(owners, Block::from_word(word));
                    accepted.map_err(EndpointError::Field)
                })
            } else {
                self.accept(channels, owners, End::from_word(word))
            };
            let entry = self.get(number)?;
            match accepted {
                Ok(handle) => entry.letter.words[at] = u64::from(handle),
                Err(error) => {
                    // The words before are handles now; those behind are discarded, and there are no fields.
                    entry.arrived = false;
                    let mut letter = entry.letter;
                    let behind = (!1u32 << at) as u16;
                    letter.blocks &= behind;
                    letter.ends &= behind;
                    channels.discard(owners, &letter);
                    return Err(error);
                }
            }
        }
        Ok(arrived)
    }

    fn accept(&mut self, channels: &Channels, owners: &Owners, end: End) -> Result<u32, EndpointError> {
        if !channels.accept(self.process, end) {
            return Err(EndpointError::Stale);
        }
        self.enter(end).inspect_err(|_| {
            channels.close(owners, self.process, end);
        })
    }

    /// Closes an endpoint.
    ///
    /// # Errors
    /// [`EndpointError::Stale`], also at the second time.
    pub fn close(&mut self, channels: &Channels, owners: &Owners, number: u32) -> Result<(), EndpointError> {
        let end = self.leave(number)?;
        if channels.close(owners, self.process, end) {
            Ok(())
        } else {
            Err(EndpointError::Stale)
        }
    }

    /// Closes every endpoint, when the process ends.
    pub fn clear(&mut self, channels: &Channels, owners: &Owners) {
        for number in 1..=self.entries.len() as u32 {
            let _ = self.close(channels, owners, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_past_the_queue_has_its_bits_and_its_handle_and_no_more() {
        let mut endpoint = Endpoint {
            end: End::from_word(0),
            arrived: false,
            letter: Letter::new(0),
        };
        let masks = [u64::from(u32::MAX), u64::MAX, u64::from(u32::MAX), 0];
        endpoint.deliver(7, 3, [u64::MAX; SHORT_WORDS], &masks, Some((2, 5)));
        let fields: Vec<_> = (0..4).map(|field| endpoint.field(7, field)).collect();
        assert_eq!(fields, [Some(u64::from(u32::MAX)), Some(u64::MAX), Some(5), None]);
        assert_eq!(endpoint.field(6, 0), None);
    }
}
