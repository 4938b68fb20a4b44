//! `gond module system`: builds the modules of the system itself, as files to be imported into a disk and installed
//! there (`docs/modules.md`): the C library, Lua, sqlite3, programs that use them, and what the tests need.
//!
//! Each is a description in the source tree. An object that it names is compiled from the source of that name beside
//! the description, or in the crate that carries it; again only if the source is newer. An archive that it names is built by
//! cargo, from the crate beside the description.

use crate::{GCC_FLAGS, Words, header, make, sources};
use linker::module::window::Window;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// A crate that carries C sources, and the folder of it with them.
type Carrier = (&'static str, &'static str);

/// A module: its description, where else its sources are, further flags of gcc.
struct Recipe {
    description: &'static str,
    carriers: &'static [Carrier],
    flags: &'static [&'static str],
}

const fn recipe(description: &'static str, carriers: &'static [Carrier], flags: &'static [&'static str]) -> Recipe {
    Recipe {
        description,
        carriers,
        flags,
    }
}

const LUA: Carrier = ("lua-src", "lua-5.4.7");
const SQLITE: Carrier = ("libsqlite3-sys", "sqlite3");
/// Without threads, files and plug-ins: what there is here for it is `modules/sqlite/vfs.c`.
const SQLITE_FLAGS: &[&str] = &[
    "-DSQLITE_THREADSAFE=0",
    "-DSQLITE_OMIT_LOAD_EXTENSION",
    "-DSQLITE_OS_OTHER=1",
    "-DSQLITE_TEMP_STORE=3",
];

/// In the order in which they are installed: what is imported comes first.
const RECIPES: [Recipe; 21] = [
    recipe("modules/rt/rt.md", &[], &[]),
    recipe("modules/libc/libc.md", &[], &["-fno-builtin"]),
    recipe("modules/lua/lua.md", &[LUA], &[]),
    recipe("modules/lua/luai.md", &[LUA], &[]),
    recipe("modules/lua/luacalc.md", &[LUA], &[]),
    recipe("modules/lua/luasort.md", &[LUA], &[]),
    recipe("modules/sqlite/sqlite.md", &[SQLITE], SQLITE_FLAGS),
    recipe("modules/sqlite/sqlrows.md", &[SQLITE], &[]),
    recipe("modules/sqlite/sqlprimes.md", &[SQLITE], &[]),
    recipe("modules/sqlite/luasql.md", &[SQLITE, LUA], &[]),
    recipe("tests/suite/modules/counter.md", &[], &[]),
    recipe("tests/suite/modules/counter2.md", &[], &[]),
    recipe("tests/suite/modules/client.md", &[], &[]),
    recipe("tests/suite/modules/inline.md", &[], &[]),
    recipe("tests/suite/modules/ping.md", &[], &[]),
    recipe("tests/suite/modules/pong.md", &[], &[]),
    recipe("tests/suite/modules/text.md", &[], &[]),
    // Without a C library there is no `memset` for loops that set bytes.
    recipe(
        "tests/suite/modules/native.md",
        &[],
        &["-fno-tree-loop-distribute-patterns"],
    ),
    recipe("bench/link/eight/steps.md", &[], &[]),
    recipe("bench/link/eight/digest.md", &[], &[]),
    recipe("bench/link/eight/eight.md", &[LUA, SQLITE], &[]),
];

/// Modules, among them, whose clients call them inline: their headers, `NAME.inline.h`, lie in the folder.
const INLINE: [&str; 1] = ["counter"];

/// Builds them into a folder and prints the path of each file, in the order in which they are to be installed.
pub(crate) fn command(words: &Words) -> Result<(), String> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = std::env::var_os("GOND_ROOT").map_or_else(built, PathBuf::from);
    let folder = words.output.clone().unwrap_or_else(|| root.join("target/modules"));
    let recipes = chosen(&words.files)?;
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut window = Window::default();
    for recipe in recipes {
        if let Some(path) = build(recipe, &root, &folder, &mut window)? {
            println!("{}", path.display());
        }
    }
    Ok(())
}

/// The modules with these names, in the order in which they are installed; all if there are no names.
///
/// # Errors
/// A name that no module has; the sentence lists those that there are.
fn chosen(names: &[PathBuf]) -> Result<Vec<&'static Recipe>, String> {
    let all: Vec<String> = RECIPES.iter().map(|recipe| stem(recipe.description)).collect();
    let unknown = names
        .iter()
        .find(|name| !all.iter().any(|one| name.as_os_str() == one.as_str()));
    if let Some(unknown) = unknown {
        let unknown = unknown.display();
        return Err(format!(
            "there is no module '{unknown}' of the system; there are {}",
            all.join(", ")
        ));
    }
    let is_named = |name: &String| names.is_empty() || names.iter().any(|one| one.as_os_str() == name.as_str());
    Ok(RECIPES
        .iter()
        .zip(&all)
        .filter(|(_, name)| is_named(name))
        .map(|(recipe, _)| recipe)
        .collect())
}

fn stem(path: &str) -> String {
    Path::new(path)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Builds one; none, with the reason said, if its sources cannot be had.
fn build(recipe: &Recipe, root: &Path, folder: &Path, window: &mut Window) -> Result<Option<PathBuf>, String> {
    let path = root.join(recipe.description);
    let beside = path.parent().unwrap_or(root).to_path_buf();
    let description = make::describe(&path).map_err(|error| error.to_string())?;
    let mut places = vec![beside.clone()];
    for (name, part) in recipe.carriers {
        let Some(found) = sources::find(name) else {
            return Ok(None);
        };
        places.push(found.join(part));
    }
    let name = stem(recipe.description);
    let objects = folder.join(&name);
    std::fs::create_dir_all(&objects).map_err(|error| format!("{}: {error}", objects.display()))?;
    let mut folders = vec![objects.clone()];
    for object in &description.objects {
        if Path::new(object).extension().is_some_and(|end| end == "a") {
            folders.push(archive(root, &beside, &folder.join("cargo"))?);
            continue;
        }
        let candidates = places
            .iter()
            .flat_map(|place| ["c", "s"].map(|end| place.join(object).with_extension(end)));
        let source = candidates.into_iter().find(|path| path.is_file());
        let source = source.ok_or_else(|| format!("{}: no source for {object}", recipe.description))?;
        let include = [places.as_slice(), &[folder.to_path_buf()]].concat();
        compile(&source, &objects.join(object), recipe.flags, &include)?;
    }
    let described = [
        "modules/libc",
        "modules/rt",
        "modules/lua",
        "modules/sqlite",
        "tests/suite/modules",
    ];
    folders.extend(described.map(|place| root.join(place)));
    let (_, built) = make::make(&path, &folders, window).map_err(|error| error.to_string())?;
    if INLINE.contains(&name.as_str()) {
        let sources = make::gather(&path, &folders).map_err(|error| error.to_string())?;
        let text = header::write(&sources, &[])?;
        crate::write(&folder.join(format!("{name}.inline.h")), text.as_bytes())?;
    }
    let output = folder.join(format!("{name}.mm"));
    std::fs::write(&output, &built.object).map_err(|error| format!("{}: {error}", output.display()))?;
    Ok(Some(output))
}

/// Has cargo build the static library of the crate in a folder, as for the system's programs; the folder that it is in.
fn archive(root: &Path, crate_folder: &Path, target: &Path) -> Result<PathBuf, String> {
    const TARGET: &str = "x86_64-unknown-none";
    let manifest = crate_folder.join("Cargo.toml");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "build",
        "--quiet",
        "--profile",
        "guest",
        "--target",
        TARGET,
        "--target-dir",
    ]);
    cargo
        .arg(target)
        .arg("--manifest-path")
        .arg(&manifest)
        .current_dir(root);
    // Variables that a user set for other builds must not reach this.
    for name in [
        "RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_TARGET_DIR",
    ] {
        cargo.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PROFILE_") {
            cargo.env_remove(name);
        }
    }
    cargo.env(
        "CARGO_ENCODED_RUSTFLAGS",
        "-Crelocation-model=pic\x1f-Cforce-unwind-tables=no",
    );
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    if output.status.success() {
        Ok(target.join(TARGET).join("guest"))
    } else {
        Err(format!(
            "{}:\n{}",
            manifest.display(),
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

/// When a file was changed.
pub(crate) fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|data| data.modified()).ok()
}

/// When the youngest file of a folder was changed.
pub(crate) fn newest_in(folder: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(folder).ok()?;
    entries.flatten().filter_map(|entry| changed(&entry.path())).max()
}

/// Compiles a source unless its object is younger than all sources beside it.
fn compile(source: &Path, object: &Path, flags: &[&str], places: &[PathBuf]) -> Result<(), String> {
    let newest = source.parent().and_then(newest_in);
    if changed(object).is_some_and(|made| Some(made) > newest) {
        return Ok(());
    }
    let mut gcc = Command::new("gcc");
    gcc.args(GCC_FLAGS).args(["-O2", "-c"]).args(flags);
    for place in places {
        gcc.arg("-I").arg(place);
    }
    let output = gcc.arg(source).arg("-o").arg(object).output();
    let output = output.map_err(|error| format!("gcc: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!(
            "{}:\n{}",
            source.display(),
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_modules_are_known_ones() {
        let stems = |names: &[&str]| {
            let names: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            chosen(&names).map(|recipes| {
                recipes
                    .iter()
                    .map(|recipe| stem(recipe.description))
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(stems(&[]).unwrap().len(), RECIPES.len());
        assert_eq!(stems(&["lua", "libc"]).unwrap(), ["libc", "lua"]);
        for names in [&["nonsense"][..], &["libcc", "lua"]] {
            let told = stems(names).unwrap_err();
            assert!(told.contains(names[0]) && told.contains("libc, lua,"), "{told}");
        }
    }
}
