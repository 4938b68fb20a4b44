//! Compiled images as bytes, to be kept and loaded again without the compiler.
//!
//! A stored image holds the module's own bytes, from which its summary and the layout are made anew, and the machine
//! code with its tables. Nothing in it is trusted: [`read`] checks its form, and what it returns must be proved by
//! [`crate::verify`] as if the compiler had just made it. The checksum finds damage, not malice; the
//! key ([`crate::compile::key`]) says for which module, options and version of the compiler it was made.
//!
//! ```text
//! "GONDSIP" 1 | bounds | cpu | length and text of the version | key, 32 bytes
//!   | lengths of module, code, functions, traps, calls
//!   | module | code | functions: start, end | traps: code, kind, module | calls: code, module | checksum, 32 bytes
//! ```
//!
//! Lengths are 32-bit words, the lowest byte first, as all numbers here. Lengths of tables count entries.

use crate::compile::{self, Bounds, COMPILER_VERSION, Cpu, Image, Options, TrapSite};
use crate::layout::Layout;
use crate::module::{Module, Refusal};
use crate::translate::TrapKind;
use alloc::{string::String, sync::Arc, vec::Vec};

/// The beginning of a stored image; the last byte is the format's version.
pub const MAGIC: &[u8; 8] = b"GONDSIP\x01";

/// Bytes of the checksum at the end.
const CHECKSUM: usize = 32;

/// Why stored bytes cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredError {
    /// They do not begin as a stored image does.
    Form,
    /// They are not what was written.
    Damaged,
    /// Another version of the compiler made it: this one.
    Stale(String),
    /// The key is not that of the module in it.
    Key,
    /// The module in it is refused.
    Module(Refusal),
}

impl core::fmt::Display for StoredError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Form => f.write_str("it is no compiled image of this format; compile the module again"),
            Self::Damaged => {
                f.write_str("it is damaged: its checksum is not that of its bytes; compile the module again")
            }
            Self::Stale(version) => write!(
                f,
                "it was made by another compiler ({version}; this is {COMPILER_VERSION}); compile the module again"
            ),
            Self::Key => f.write_str("its key is not that of the module in it; compile the module again"),
            Self::Module(refusal) => write!(f, "the module in it: {refusal}"),
        }
    }
}

/// Whether bytes claim to be a stored image.
pub fn is_stored(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC[..7])
}

/// The bytes under which the image of a module is kept. `module` are the bytes that it was compiled from.
///
/// # Errors
/// [`StoredError::Key`]: the image was not made of these bytes.
pub fn write(image: &Image, module: &[u8]) -> Result<Vec<u8>, StoredError> {
    if compile::key(module, image.options) != image.key {
        return Err(StoredError::Key);
    }
    let mut bytes = Vec::with_capacity(module.len() + image.code.len() + 4096);
    let word = |bytes: &mut Vec<u8>, value: u32| bytes.extend_from_slice(&value.to_le_bytes());
    bytes.extend_from_slice(MAGIC);
    bytes.push(match image.options.bounds {
        Bounds::Guard => 0,
        Bounds::Explicit => 1,
    });
    bytes.push(match image.options.cpu {
        Cpu::V2 => 2,
        Cpu::V3 => 3,
    });
    word(&mut bytes, COMPILER_VERSION.len() as u32);
    bytes.extend_from_slice(COMPILER_VERSION.as_bytes());
    bytes.extend_from_slice(&image.key);
    for length in [
        module.len(),
        image.code.len(),
        image.functions.len(),
        image.traps.len(),
        image.calls.len(),
    ] {
        word(&mut bytes, length as u32);
    }
    bytes.extend_from_slice(module);
    bytes.extend_from_slice(&image.code);
    for function in &image.functions {
        word(&mut bytes, function.start);
        word(&mut bytes, function.end);
    }
    for site in &image.traps {
        word(&mut bytes, site.code);
        word(&mut bytes, site.kind as u32);
        word(&mut bytes, site.wasm);
    }
    for (code, wasm) in &image.calls {
        word(&mut bytes, *code);
        word(&mut bytes, *wasm);
    }
    let checksum = blake3::hash(&bytes);
    bytes.extend_from_slice(checksum.as_bytes());
    Ok(bytes)
}

/// Reads front to back.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], StoredError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(StoredError::Form)?;
        self.0 = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u32, StoredError> {
        let bytes = self.take(4)?.try_into().map_err(|_| StoredError::Form)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// A table of so many entries of `N` words.
    fn table<const N: usize, T>(
        &mut self,
        count: u32,
        entry: impl Fn([u32; N]) -> Option<T>,
    ) -> Result<Vec<T>, StoredError> {
        // No more room is made than there are bytes for.
        let bytes = (count as usize).checked_mul(4 * N).ok_or(StoredError::Form)?;
        let mut reader = Reader(self.take(bytes)?);
        let mut entries = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let mut words = [0; N];
            for word in &mut words {
                *word = reader.word()?;
            }
            entries.push(entry(words).ok_or(StoredError::Form)?);
        }
        Ok(entries)
    }
}

/// Reads a stored image. It has to be proved before it can be loaded.
///
/// # Errors
/// A [`StoredError`].
pub fn read(bytes: &[u8]) -> Result<Image, StoredError> {
    if !is_stored(bytes) {
        return Err(StoredError::Form);
    }
    let at = bytes.len().checked_sub(CHECKSUM).ok_or(StoredError::Damaged)?;
    let (content, checksum) = bytes.split_at(at);
    if blake3::hash(content).as_bytes() != checksum {
        return Err(StoredError::Damaged);
    }
    let mut reader = Reader(content);
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(StoredError::Form);
    }
    let options = match reader.take(2)? {
        [bounds @ 0..=1, cpu @ 2..=3] => Options {
            bounds: [Bounds::Guard, Bounds::Explicit][usize::from(*bounds)],
            cpu: [Cpu::V2, Cpu::V3][usize::from(*cpu - 2)],
        },
        _ => return Err(StoredError::Form),
    };
    let length = reader.word()?;
    let version = reader.take(length as usize)?;
    if version != COMPILER_VERSION.as_bytes() {
        return Err(StoredError::Stale(String::from_utf8_lossy(version).into_owned()));
    }
    let key: [u8; 32] = reader.take(32)?.try_into().map_err(|_| StoredError::Form)?;
    let mut lengths = [0; 5];
    for length in &mut lengths {
        *length = reader.word()?;
    }
    let [module, code, functions, traps, calls] = lengths;
    let module = reader.take(module as usize)?;
    if compile::key(module, options) != key {
        return Err(StoredError::Key);
    }
    let module = Module::parse(module).map_err(StoredError::Module)?.0;
    let image = Image {
        key,
        options,
        layout: Layout::new(&module),
        module: Arc::new(module),
        code: reader.take(code as usize)?.to_vec(),
        functions: reader.table(functions, |[start, end]| {
            (start <= end && end <= code).then_some(start..end)
        })?,
        traps: reader.table(traps, |[code, kind, wasm]| {
            let kind = TrapKind::ALL.into_iter().find(|known| *known as u32 == kind)?;
            Some(TrapSite { code, kind, wasm })
        })?,
        calls: reader.table(calls, |[code, wasm]| Some((code, wasm)))?,
    };
    let own = image.module.functions.len() - image.module.imported_functions;
    if image.functions.len() != own || !reader.0.is_empty() {
        return Err(StoredError::Form);
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::{Extern, Program, Store, Val};
    use crate::verify::verify;

    const TEXT: &str = r#"(module
        (memory 1) (table 1 funcref) (elem (i32.const 0) $double)
        (func $double (param i32) (result i32) (i32.mul (local.get 0) (i32.const 2)))
        (func (export "run") (param i32) (result i32)
            (i32.store (i32.const 8) (local.get 0))
            (call_indirect (param i32) (result i32) (i32.load (i32.const 8)) (i32.const 0)))
        (func (export "stop") unreachable))"#;

    fn stored(options: Options) -> (Vec<u8>, Image) {
        let module = wat::parse_str(TEXT).unwrap();
        let image = compile::compile(&module, options).unwrap();
        (write(&image, &module).unwrap(), image)
    }

    /// Bytes with a checksum that is theirs.
    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.truncate(bytes.len() - CHECKSUM);
        let checksum = blake3::hash(&bytes);
        bytes.extend_from_slice(checksum.as_bytes());
        bytes
    }

    #[test]
    fn what_is_read_is_what_was_written_and_runs() {
        for bounds in [Bounds::Guard, Bounds::Explicit] {
            for cpu in [Cpu::V2, Cpu::V3] {
                let options = Options { bounds, cpu };
                let (bytes, image) = stored(options);
                let read = read(&bytes).unwrap();
                assert_eq!(
                    (read.key, read.options, read.layout),
                    (image.key, options, image.layout)
                );
                assert_eq!(*read.module, *image.module);
                assert_eq!((&read.code, &read.functions), (&image.code, &image.functions));
                assert_eq!((&read.traps, &read.calls), (&image.traps, &image.calls));
                if cpu == Cpu::V3 {
                    continue;
                }
                let program = Program::load(verify(read).unwrap()).unwrap();
                let mut store = Store::new().unwrap();
                let instance = store.instantiate(&program, &[]).unwrap();
                let Some(Extern::Func(run)) = store.export(instance, "run") else {
                    panic!("no run");
                };
                assert_eq!(store.call(run, &[Val::I32(21)]), Ok(vec![Val::I32(42)]));
            }
        }
    }

    #[test]
    fn damage_is_found() {
        let (bytes, _) = stored(Options::default());
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err());
        }
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            let expected = if at < 7 {
                StoredError::Form
            } else {
                StoredError::Damaged
            };
            assert_eq!(read(&bytes).err(), Some(expected), "byte {at}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(read(&longer).err(), Some(StoredError::Damaged));
    }

    #[test]
    fn another_compilers_image_is_stale() {
        let (bytes, _) = stored(Options::default());
        let at = bytes.windows(9).position(|window| window == b"cranelift").unwrap();
        let mut bytes = bytes.clone();
        bytes[at] = b'k';
        let Err(StoredError::Stale(version)) = read(&sealed(bytes)) else {
            panic!("not stale");
        };
        assert!(version.contains("kranelift"));
    }

    /// A checksum that fits what somebody has changed: it is refused, by its form or by the proof, or as good as before.
    #[test]
    fn what_was_changed_on_purpose_is_proved_like_anything_else() {
        let (bytes, image) = stored(Options::default());
        let (mut refused, mut unproved) = (0, 0);
        for at in 0..bytes.len() - CHECKSUM {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            match read(&sealed(bytes)) {
                Err(_) => refused += 1,
                Ok(image) => unproved += u32::from(verify(image).is_err()),
            }
        }
        assert!(
            refused > 100 && unproved > 100,
            "{refused} refused, {unproved} not proved"
        );
        // And code that reaches anywhere, in a form without fault.
        let at = bytes
            .windows(image.code.len())
            .position(|window| window == image.code)
            .unwrap();
        let mut bytes = bytes;
        // mov rax, [rsi]
        bytes[at..at + 3].copy_from_slice(&[0x48, 0x8b, 0x06]);
        assert!(verify(read(&sealed(bytes)).unwrap()).is_err());
    }
}
