//! Sources of Debian packages, fetched once. The lists of what there is are apart from the machine's own, which mostly
//! has none of sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where this machine gets Debian's packages from, for sources: its own lists, with another type. The releases are enough,
/// without what was mended since.
fn servers() -> String {
    let mut text = String::new();
    let folders = [Path::new("/etc/apt"), Path::new("/etc/apt/sources.list.d")];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    for path in files.map(|entry| entry.path()) {
        let Ok(list) = fs::read_to_string(&path) else { continue };
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("sources") => {
                let ours = list.split("\n\n");
                let ours = ours.filter(|part| part.contains("debian-archive-keyring") && !part.contains("security"));
                text.extend(ours.map(|part| part.replace("Types: deb\n", "Types: deb-src\n") + "\n\n"));
            }
            Some("list") => {
                let lines = list.lines().filter_map(|line| line.strip_prefix("deb "));
                for words in lines
                    .filter(|words| words.contains("/debian "))
                    .map(|words| words.split_whitespace().collect::<Vec<_>>())
                {
                    if let [.., server, suite, _] = words[..] {
                        text.extend([
                            "Types: deb-src\nURIs: ",
                            server,
                            "\nSuites: ",
                            suite,
                            "\nComponents: main\n\n",
                        ]);
                    }
                }
            }
            _ => {}
        }
    }
    text
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    output
        .status
        .success()
        .then_some(())
        .ok_or_else(|| format!("{command:?}: {}", said.trim()))
}

/// The folders with the sources of packages, by their names; what is not there is fetched. A package that cannot be had is
/// told and left out.
pub fn all(place: &Path, packages: &[&'static str]) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let place = &std::path::absolute(place).map_err(|error| error.to_string())?;
    let apt = |words: &[&str], within: &Path| {
        let set = |name: &str, to: &str| format!("{name}={}", place.join(to).display());
        let mut command = Command::new("apt-get");
        command.args(["-o", "Dir::Etc::SourceList=/dev/null", "-o", "APT::Sandbox::User=root"]);
        command.args([
            "-o",
            &set("Dir::Etc::SourceParts", "servers"),
            "-o",
            &set("Dir::State::Lists", "lists"),
        ]);
        run(command.args(words).current_dir(within))
    };
    let missing = |package: &&&str| !place.join("sources").join(package).exists();
    if packages.iter().any(|package| missing(&package)) {
        let made = ["servers", "lists/partial", "sources"].map(|folder| fs::create_dir_all(place.join(folder)));
        made.into_iter()
            .collect::<Result<Vec<()>, _>>()
            .map_err(|error| error.to_string())?;
        fs::write(place.join("servers/debian.sources"), servers()).map_err(|error| error.to_string())?;
        apt(&["update"], place)?;
    }
    for package in packages.iter().filter(missing) {
        let part = place.join("sources").join(format!("{package}.part"));
        let _ = fs::remove_dir_all(&part);
        fs::create_dir_all(&part).map_err(|error| error.to_string())?;
        match apt(&["source", "--only-source", package], &part) {
            Ok(()) => fs::rename(&part, place.join("sources").join(package)).map_err(|error| error.to_string())?,
            Err(why) => println!("{package} is left out: {}", why.lines().last().unwrap_or_default()),
        }
    }
    let unpacked = |package: &&'static str| {
        let entries = fs::read_dir(place.join("sources").join(package)).ok()?.flatten();
        let folder = entries.map(|entry| entry.path()).find(|path| path.is_dir());
        Some((*package, folder?))
    };
    Ok(packages.iter().filter_map(unpacked).collect())
}
