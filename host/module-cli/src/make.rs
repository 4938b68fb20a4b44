//! From a description on the disk to a module object: finds the files that it names and links them.

use linker::module::link::{Built, Request, link_and};
use linker::module::relocate::{Layout, World};
use linker::module::window::Window;
use linker::module::{Description, Fault};
use std::fmt;
use std::path::{Path, PathBuf};

/// Why a module could not be made.
#[derive(Debug)]
pub enum MakeError {
    /// A file that cannot be read.
    File(PathBuf, std::io::Error),
    /// A file that a description names and nobody has; where was looked.
    Absent(String, Vec<PathBuf>),
    /// The findings of the linker.
    Link(Vec<Fault>),
}

impl fmt::Display for MakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Absent(name, places) => {
                write!(f, "{name}: not found in")?;
                for place in places {
                    write!(f, " {}", place.display())?;
                }
                f.write_str(": name its folder with --in")
            }
            Self::Link(faults) => {
                for (index, fault) in faults.iter().enumerate() {
                    if index > 0 {
                        writeln!(f)?;
                    }
                    fault.fmt(f)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for MakeError {}

impl From<Fault> for MakeError {
    fn from(fault: Fault) -> Self {
        Self::Link(vec![fault])
    }
}

/// Reads a file.
///
/// # Errors
/// [`MakeError::File`].
pub fn read(path: &Path) -> Result<Vec<u8>, MakeError> {
    std::fs::read(path).map_err(|error| MakeError::File(path.into(), error))
}

/// Reads a description.
///
/// # Errors
/// If there is no such file, or it is no description.
pub fn describe(path: &Path) -> Result<Description, MakeError> {
    let text = read(path)?;
    let name = path.display().to_string();
    Ok(Description::parse(&name, &String::from_utf8_lossy(&text))?)
}

/// A description, and the files that it names.
pub struct Sources {
    /// It.
    pub description: Description,
    /// The descriptions of the modules that it imports.
    pub imports: Vec<Description>,
    /// Name and bytes of each of its objects.
    pub objects: Vec<(String, Vec<u8>)>,
}

impl Sources {
    /// The objects as the linker takes them.
    pub fn files(&self) -> Vec<(String, &[u8])> {
        let all = self.objects.iter();
        all.map(|(name, bytes)| (name.clone(), bytes.as_slice())).collect()
    }
}

/// Reads the description at `path` and what it names, which is looked for beside it, then in `folders`.
///
/// # Errors
/// The first file that is missing, or no description.
pub fn gather(path: &Path, folders: &[PathBuf]) -> Result<Sources, MakeError> {
    let description = describe(path)?;
    let mut places = vec![path.parent().unwrap_or(Path::new(".")).to_path_buf()];
    places.extend_from_slice(folders);
    let find = |name: &str| {
        let mut all = places.iter().map(|folder| folder.join(name));
        all.find(|path| path.is_file())
            .ok_or_else(|| MakeError::Absent(name.into(), places.clone()))
    };
    let mut imports = Vec::new();
    for import in &description.imports {
        imports.push(describe(&find(import)?)?);
    }
    let mut objects = Vec::new();
    for object in &description.objects {
        objects.push((object.clone(), read(&find(object)?)?));
    }
    Ok(Sources {
        description,
        imports,
        objects,
    })
}

/// Links the module that the description at `path` describes. What it names is looked for beside it, then in
/// `folders`; the address comes from `window`.
///
/// # Errors
/// The first file that is missing, or all faults that the linker found.
pub fn make(path: &Path, folders: &[PathBuf], window: &mut Window) -> Result<(Description, Built), MakeError> {
    let give = |description: &Description, bytes| window.give(&description.name, &description.version, bytes);
    make_and(path, folders, give, |_, _, _| ()).map(|(description, built, ())| (description, built))
}

/// The same at an address that `give` chooses; `also` sees the files and where everything is.
///
/// # Errors
/// As [`make`].
pub fn make_and<T>(
    path: &Path,
    folders: &[PathBuf],
    give: impl FnOnce(&Description, u64) -> Result<u64, Fault>,
    also: impl FnOnce(&[(String, &[u8])], &World<'_>, &Layout) -> T,
) -> Result<(Description, Built, T), MakeError> {
    let sources = gather(path, folders)?;
    let files = sources.files();
    let request = Request {
        description: &sources.description,
        files: &files,
        imports: &sources.imports,
    };
    let give = |bytes| give(&sources.description, bytes);
    let linked = link_and(&request, give, |world, layout| also(&files, world, layout));
    let (built, seen) = linked.map_err(MakeError::Link)?;
    Ok((sources.description, built, seen))
}
