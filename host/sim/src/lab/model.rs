//! What the store ought to hold, and what the jobs under way make of it.

use std::collections::BTreeMap;
use store::{BLOCK, ObjectRecord, PageFlags};

/// Contents and limits of a page. Stamp zero means zeroes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    pub stamp: u64,
    pub flags: PageFlags,
}

/// An object with its pages; a page that is not listed is zero and without limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    pub record: ObjectRecord,
    pub pages: BTreeMap<u64, Page>,
}

/// A whole state.
pub type State = BTreeMap<u64, Object>;

/// The contents that a stamp stands for.
pub fn fill(stamp: u64, bytes: &mut [u8; BLOCK]) {
    if stamp == 0 {
        bytes.fill(0);
        return;
    }
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(
            &stamp
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .wrapping_add(at as u64)
                .to_le_bytes(),
        );
    }
}

/// Whether `bytes` are what the stamp stands for.
pub fn is_filled(stamp: u64, bytes: &[u8; BLOCK]) -> bool {
    let mut wanted = [0; BLOCK];
    fill(stamp, &mut wanted);
    *bytes == wanted
}

/// Something begun that will make a state durable.
#[derive(Clone)]
pub enum Job {
    /// All of this; and the last sync that was begun before it.
    Checkpoint(State, store::Ticket),
    /// These objects, as they were.
    Sync(store::Ticket, Objects, Ahead),
}

/// Objects as a sync makes them durable, or gone.
pub type Objects = Vec<(u64, Option<Object>)>;

/// The objects as a sync makes them durable that goes ahead of the checkpoint before it, without that checkpoint's pages; if it may.
pub type Ahead = Option<Objects>;

/// Makes objects what they are in a sync.
pub fn enter(objects: &Objects, state: &mut State) {
    for (base, object) in objects {
        match object {
            Some(object) => state.insert(*base, object.clone()),
            None => state.remove(base),
        };
    }
}

impl Job {
    /// Its ticket, if it is a sync.
    pub fn ticket(&self) -> Option<store::Ticket> {
        match self {
            Self::Checkpoint(..) => None,
            Self::Sync(ticket, ..) => Some(*ticket),
        }
    }

    /// The objects of a sync, as it makes them durable in its turn.
    pub fn objects(&self) -> Option<&Objects> {
        match self {
            Self::Checkpoint(..) => None,
            Self::Sync(_, objects, _) => Some(objects),
        }
    }

    /// The objects of a sync that goes ahead of the checkpoint before it, as it makes them durable then.
    pub fn ahead(&self) -> Option<&Objects> {
        match self {
            Self::Sync(_, _, Some(ahead)) => Some(ahead),
            _ => None,
        }
    }

    /// The objects of a sync, as it makes them durable while the checkpoint before it is not.
    pub fn alone(&self) -> Option<&Objects> {
        self.ahead().or_else(|| self.objects())
    }

    /// The checkpoint before a sync is done: it does not go ahead.
    pub fn comes_behind(&mut self) {
        if let Self::Sync(_, _, ahead) = self {
            *ahead = None;
        }
    }

    /// The state once it is done.
    pub fn apply(&self, state: &mut State) {
        match self {
            Self::Checkpoint(all, _) => state.clone_from(all),
            Self::Sync(_, objects, _) => enter(objects, state),
        }
    }
}
