//! Where the user is: the current directory, and how names are found from there.

use alloc::{format, string::String, vec::Vec};

use rt::{Directory, Error, Kind, Result, directory::Found};

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
    pub fn enter(&mut self, path: &str) -> Result<()> {
        let target = self.walk(path);
        target.open()?;
        *self = target;
        Ok(())
    }

    /// The directory here.
    fn open(&self) -> Result<Directory> {
        let root = Directory::root()?;
        if self.names.is_empty() {
            return Ok(root);
        }
        let found = root.find(&self.path())?;
        if found.kind != Kind::Directory {
            return Err(Error::WrongKind(found.kind));
        }
        Directory::open(found.capability.address)
    }

    /// The directory that a path leads to from here.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn directory(&self, path: &str) -> Result<Directory> {
        self.walk(path).open()
    }

    /// The directory in which a path's last name stands or would stand, and that name.
    ///
    /// # Errors
    /// There is no such directory; the path has no last name.
    pub fn parent(&self, path: &str) -> Result<(Directory, String)> {
        let mut target = self.walk(path);
        let name = target.names.pop().ok_or(Error::Path(rt::names::PathError::Empty))?;
        Ok((target.open()?, name))
    }

    /// Looks a path up from here.
    ///
    /// # Errors
    /// There is no such name.
    pub fn find(&self, path: &str) -> Result<Found> {
        let (directory, name) = self.parent(path)?;
        directory.find(&name)
    }

    /// Looks a program's name up: from here, then from the root.
    ///
    /// # Errors
    /// There is no such name.
    pub fn find_program(&self, name: &str) -> Result<Found> {
        match self.find(name) {
            Err(Error::NoSuchName) if !name.contains('/') => Directory::root()?.find(name),
            other => other,
        }
    }

    /// All paths from here that begin with what is typed; directories end with `/`.
    pub fn names_with_prefix(&self, typed: &str) -> Vec<String> {
        let (before, last) = typed.rfind('/').map_or(("", typed), |at| typed.split_at(at + 1));
        let Ok(names) = self.directory(before).and_then(|directory| directory.list()) else {
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

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn paths_are_walked_as_text() {
        let home = Place::default().walk("a/b");
        assert_eq!(home.path(), "/a/b");
        assert_eq!(home.walk("../c/./d/").path(), "/a/c/d");
        assert_eq!(home.walk("/x").path(), "/x");
        assert_eq!(home.walk("../../..").path(), "/");
    }
}
