//! The window of modules: which address each version of each module has, for ever.
//!
//! Addresses are handed out one behind the other with a page between, so that modules lie close together
//! and begin at different page colours (two modules at the same low address bits contend for the same sets
//! of caches and of the branch predictor: 7 % in a trial). The list is a text; an address once given is
//! never given again, not even when its module is gone.

use super::fault::{Cause, Fault};
use abi::address::PAGE;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// First address of the window: 8 TiB, above what other objects reach and where the host's tools can still map.
pub const WINDOW_START: u64 = 0x0800_0000_0000;
/// One past its last: 64 GiB.
pub const WINDOW_END: u64 = WINDOW_START + (64 << 30);

/// A range that was given to a version of a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its address.
    pub address: u64,
    /// Its pages.
    pub pages: u64,
    /// The module's name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The list of ranges, in the order in which they were given.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Window {
    places: Vec<Place>,
}

impl Window {
    /// Reads a list: lines of address (hexadecimal), pages, name, version. `file` is only for messages.
    ///
    /// # Errors
    /// The first line that is none, lies outside the window or overlaps an earlier one.
    pub fn parse(file: &str, text: &str) -> Result<Self, Fault> {
        let mut window = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let place = place(line).ok_or_else(|| Fault {
                at: Some(number as u64 + 1),
                ..Fault::file(
                    file,
                    Cause::Syntax(format!("'{line}' is not 'ADDRESS PAGES NAME VERSION' in the window")),
                )
            })?;
            if place.address < window.next() {
                let why = format!("'{line}' overlaps an earlier line or stands out of order");
                return Err(Fault {
                    at: Some(number as u64 + 1),
                    ..Fault::file(file, Cause::Syntax(why))
                });
            }
            window.places.push(place);
        }
        Ok(window)
    }

    /// The ranges given so far.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The address that [`Window::give`] would give next.
    pub fn next(&self) -> u64 {
        self.places
            .last()
            .map_or(WINDOW_START, |last| last.address + (last.pages + 1) * PAGE)
    }

    /// Gives `bytes` bytes to a version of a module.
    ///
    /// # Errors
    /// [`Cause::WindowFull`].
    pub fn give(&mut self, name: &str, version: &str, bytes: u64) -> Result<u64, Fault> {
        let address = self.next();
        let pages = abi::address::pages_for(bytes).filter(|pages| *pages > 0);
        let fits = pages.filter(|pages| *pages <= (WINDOW_END - address.min(WINDOW_END)) / PAGE);
        let pages = fits.ok_or_else(|| Fault::file(name, Cause::WindowFull))?;
        self.places.push(Place {
            address,
            pages,
            name: name.into(),
            version: version.into(),
        });
        Ok(address)
    }
}

fn place(line: &str) -> Option<Place> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    let pages: u64 = words.next()?.parse().ok()?;
    let place = Place {
        address,
        pages,
        name: words.next()?.into(),
        version: words.next()?.into(),
    };
    let inside = (WINDOW_START..WINDOW_END).contains(&address)
        && address.is_multiple_of(PAGE)
        && (1..=(WINDOW_END - address) / PAGE).contains(&pages);
    (inside && words.next().is_none()).then_some(place)
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in &self.places {
            let Place {
                address,
                pages,
                name,
                version,
            } = place;
            writeln!(f, "{address:#014x} {pages:6} {name} {version}")?;
        }
        Ok(())
    }
}
