//! Where the user is: the current directory, and how names are found from there.

use alloc::{format, string::String, vec::Vec};

use rt::{
    Directory, Error, Kind,
    directory::Found,
    names::{PathError, Quoted},
};

use crate::{
    commands::{Outcome, said},
    programs::kind_in_words,
};

/// A path from the root, name by name; empty is the root itself. It is text only: the way is walked
/// each time, so a directory that vanishes is noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    names: Vec<String>,
}

impl Place {
    /// The place that a path leads to from here, as text; `..` goes back.
    fn walk(&self, path: &str) -> Self {
        let mut names = if path.starts_with('/') {
            Vec::new()
        } else {
            self.names.clone()
        };
        for name in path.split('/') {
            match name {
                "" | "." => {}
                ".." => {
                    names.pop();
                }
                other => names.push(other.into()),
            }
        }
        Self { names }
    }

    /// The path, as the user reads it.
    pub fn path(&self) -> String {
        format!("/{}", self.names.join("/"))
    }

    /// Goes to the directory that a path leads to.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn enter(&mut self, path: &str) -> Outcome {
        let target = self.walk(not_empty(path)?);
        target.open()?;
        *self = target;
        Ok(())
    }

    /// Goes with a name that was changed, if it is the name of this place or of one on the way here.
    pub fn follow(&mut self, old: &str, new: &str) {
        let (old, new) = (self.walk(old), self.walk(new));
        if self.names.starts_with(&old.names) {
            self.names.splice(..old.names.len(), new.names);
        }
    }

    /// The directory here. A complaint has the path up to the name that is missing, or is no directory.
    fn open(&self) -> Outcome<Directory> {
        let mut directory = Directory::root()?;
        for (depth, name) in self.names.iter().enumerate() {
            let path = || format!("/{}", self.names[..=depth].join("/"));
            let found = match directory.find(name) {
                Err(Error::NoSuchName) => {
                    let above = self.names[..depth].join("/");
                    return said(format!(
                        "{}: there is no such directory; 'ls /{}' lists the names",
                        path(),
                        Quoted(&above)
                    ));
                }
                other => other?,
            };
            if found.kind != Kind::Directory {
                let kind = kind_in_words(found.kind);
                return said(format!("{}: this is {kind}, not a directory", path()));
            }
            directory = Directory::open(found.capability.address)?;
        }
        Ok(directory)
    }

    /// The directory that a path leads to from here.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn directory(&self, path: &str) -> Outcome<Directory> {
        self.walk(not_empty(path)?).open()
    }

    /// The directory in which a path's last name stands or would stand, and that name.
    ///
    /// # Errors
    /// There is no such directory; the path has no last name.
    pub fn parent(&self, path: &str) -> Outcome<(Directory, String)> {
        let mut target = self.walk(not_empty(path)?);
        let Some(name) = target.names.pop() else {
            return said(format!(
                "{path}: the root directory has no name that could be used here"
            ));
        };
        Ok((target.open()?, name))
    }

    /// Looks a path up from here.
    ///
    /// # Errors
    /// There is no such name.
    pub fn find(&self, path: &str) -> Outcome<Found> {
        let (directory, name) = self.parent(path)?;
        Ok(directory.find(&name)?)
    }

    /// Looks a program's name up: from here, then from the root.
    ///
    /// # Errors
    /// There is no such name.
    pub fn find_program(&self, name: &str) -> Outcome<Found> {
        match self.find(name) {
            Err(_) if !name.contains('/') && !self.names.is_empty() => Ok(Directory::root()?.find(name)?),
            other => other,
        }
    }

    /// All paths from here that begin with what is typed; directories end with `/`.
    pub fn names_with_prefix(&self, typed: &str) -> Vec<String> {
        let (before, last) = typed.rfind('/').map_or(("", typed), |at| typed.split_at(at + 1));
        let Ok(names) = self.walk(before).open().and_then(|directory| Ok(directory.list()?)) else {
            return Vec::new();
        };
        names
            .iter()
            .filter(|named| named.name.starts_with(last))
            .map(|named| {
                let end = if named.found.kind == Kind::Directory { "/" } else { "" };
                format!("{before}{}{end}", named.name)
            })
            .collect()
    }
}

/// The path, which must not be empty.
fn not_empty(path: &str) -> Outcome<&str> {
    if path.is_empty() {
        return Err(Error::Path(PathError::Empty).into());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn a_place_goes_with_its_names() {
        let here = Place::default().walk("a/b/c");
        for (old, new, path) in [
            (".", "../d", "/a/b/d"),
            ("../../b", "/a/x y", "/a/x y/c"),
            ("/a", "/z", "/z/b/c"),
            ("../b", "../e", "/a/b/c"),
            ("c", "e", "/a/b/c"),
        ] {
            let mut place = here.clone();
            place.follow(old, new);
            assert_eq!(place.path(), path, "{old} {new}");
        }
    }

    #[test]
    fn paths_are_walked_as_text() {
        let home = Place::default().walk("a/b");
        assert_eq!(home.path(), "/a/b");
        assert_eq!(home.walk("../c/./d/").path(), "/a/c/d");
        assert_eq!(home.walk("/x").path(), "/x");
        assert_eq!(home.walk("../../..").path(), "/");
    }
}
