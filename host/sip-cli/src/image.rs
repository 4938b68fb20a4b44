//! `gond sip compile`: a module's image in a file; and images out of files, compiled or stored. Either kind is proved
//! before it is used.

use crate::{Outcome, explicit, misused, read};
use sip::compile::{Image, Options, compile};
use sip::module::ExportIndex;
use sip::stored;
use sip::verify::{self, Verified};
use std::io::Write;
use std::path::Path;

/// The ending of files with a stored image.
const ENDING: &str = "sip";

/// Whether a word of the command line names a module, or a stored image of one.
pub fn is_program(word: &str) -> bool {
    let extension = Path::new(word).extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("wasm") || extension.eq_ignore_ascii_case(ENDING))
}

/// The image of a file: a module is compiled with these options, a stored image has its own. `given` are options of the
/// command line, which a stored image cannot follow.
pub fn load(file: &str, given: Option<Options>) -> Result<Image, (String, i32)> {
    let fail = |text: String| (format!("{file}: {text}"), 1);
    let bytes = read(file)?;
    if !stored::is_stored(&bytes) {
        return compile(&bytes, given.unwrap_or_default()).map_err(|refusal| fail(refusal.to_string()));
    }
    let image = stored::read(&bytes).map_err(|error| fail(error.to_string()))?;
    match given {
        Some(options) if options != image.options => Err(fail(
            "it was compiled without --explicit; compile the module again, with it".into(),
        )),
        _ => Ok(image),
    }
}

/// Proves an image of a file.
pub fn prove(file: &str, image: Image) -> Result<Verified, (String, i32)> {
    verify::prove(image).map_err(|(_, image)| (refusals(file, &image), 1))
}

/// A line for each function of an image that is not proved: which it is, where in it, and why. No lines if all are proved.
pub fn refusals(file: &str, image: &Image) -> String {
    let refused = match verify::refused(image) {
        Ok(refused) => refused,
        Err(violation) => return format!("{file}: not proved: {violation}"),
    };
    let lines = refused.into_iter().map(|(at, violation)| {
        let number = (at + image.module.imported_functions) as u32;
        let exported = image
            .module
            .exports
            .iter()
            .find(|(_, what)| *what == ExportIndex::Func(number));
        let name = exported.map(|(name, _)| format!(" '{name}'")).unwrap_or_default();
        let start = image.functions[at].start;
        format!(
            "{file}: function {number}{name} is not proved: {}, {:#x} bytes from its start{}",
            violation.reason.message(),
            violation.offset.saturating_sub(start),
            origin(image, at, violation.offset),
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The WebAssembly instruction nearest to a place in a function, of those that are known: they trap or call.
fn origin(image: &Image, function: usize, offset: u32) -> String {
    let range = &image.functions[function];
    let traps = image.traps.iter().map(|site| (site.code, site.wasm));
    let near = traps
        .chain(image.calls.iter().copied())
        .filter(|(code, wasm)| range.contains(code) && *wasm != 0)
        .min_by_key(|(code, _)| code.abs_diff(offset));
    near.map(|(_, wasm)| format!(" (near byte {wasm:#x} of the module)"))
        .unwrap_or_default()
}

/// Runs `gond sip compile`.
pub fn command(words: &[String]) -> Outcome {
    let (mut options, mut file, mut into) = (Options::default(), None, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--explicit" => options = explicit(),
            "-o" => {
                let name = words.next();
                into = Some(name.ok_or_else(|| misused("-o wants the name of an IMAGE.sip"))?);
            }
            other if other.starts_with('-') => return Err(misused(&format!("compile knows no option {other}"))),
            _ if file.is_none() => file = Some(word),
            other => return Err(misused(&format!("compile takes one FILE.wasm; '{other}' is one more"))),
        }
    }
    let file = file.ok_or_else(|| misused("compile wants a FILE.wasm"))?;
    let beside = Path::new(file).with_extension(ENDING);
    let into = into.map_or(beside.as_path(), Path::new);
    if !into.to_str().is_some_and(is_program) || into.extension().is_some_and(|ending| ending != ENDING) {
        return Err(misused(&format!("'{}' does not end in .{ENDING}", into.display())));
    }
    let module = read(file)?;
    let fail = |text: String| (format!("{file}: {text}"), 1);
    if stored::is_stored(&module) {
        return Err(fail("it is compiled already".into()));
    }
    if std::fs::canonicalize(into).is_ok_and(|into| std::fs::canonicalize(file).is_ok_and(|file| file == into)) {
        return Err(fail(
            "the image would replace it; name another IMAGE.sip with -o".into(),
        ));
    }
    let image = compile(&module, options).map_err(|refusal| fail(refusal.to_string()))?;
    let image = prove(file, image)?;
    let bytes = stored::write(&image, &module).map_err(|error| fail(error.to_string()))?;
    // A run that is interrupted leaves no half of it under the name.
    let mut part = into.as_os_str().to_owned();
    part.push(format!(".{}.new", std::process::id()));
    let fill = |mut file: std::fs::File| {
        let filled = file.write_all(&bytes).and_then(|()| std::fs::rename(&part, into));
        filled.inspect_err(|_| drop(std::fs::remove_file(&part)))
    };
    let written = std::fs::File::create_new(&part).and_then(fill);
    written.map_err(|error| (format!("{}: {error}", into.display()), 1))?;
    Ok(0)
}
