//! The kernels' sources, and clang, which builds them for both sides.

use crate::bindings;
use sip::contract::{Contract, Protocol};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A kernel: its name, its source, and how often it does its work in one sample.
pub struct Kernel {
    pub name: &'static str,
    source: &'static str,
    pub times: u32,
}

macro_rules! kernels {
    ($($name:ident $times:literal),*) => {
        [$(Kernel {
            name: stringify!($name),
            source: include_str!(concat!("../../../../sip/bench/", stringify!($name), ".c")),
            times: $times,
        }),*]
    };
}

pub const KERNELS: [Kernel; 8] = kernels!(
    sieve 8, sha256 12, matrix 10, quicksort 8, json 60, regex 1, hashmap 10, interpreter 10
);

/// Further sources that are written beside the kernels.
const OTHERS: [(&str, &str); 5] = [
    ("kernel.h", include_str!("../../../../sip/bench/kernel.h")),
    ("native.c", include_str!("../../../../sip/bench/native.c")),
    ("echo_client.c", include_str!("../../../../sip/bench/echo_client.c")),
    ("echo_server.c", include_str!("../../../../sip/bench/echo_server.c")),
    ("gondwana.h", include_str!("../../../../sip/guest/gondwana.h")),
];

const FOR_WASM: [&str; 6] = [
    "--target=wasm32",
    "-nostdlib",
    "-mbulk-memory",
    "-msign-ext",
    "-Wl,--no-entry",
    "-O2",
];

/// A folder with everything that is measured, gone at the end.
pub struct Workshop {
    folder: PathBuf,
    /// The contract of the messages.
    pub echo: Arc<Protocol>,
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Workshop {
    /// Writes the sources and builds the kernels.
    pub fn open() -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("gond-sip-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let text = include_str!("../../../../sip/bench/echo.contract");
        let contract = Contract::parse(text).map_err(|error| error.to_string())?;
        let header = bindings::c_header(&contract);
        let workshop = Self {
            folder,
            echo: Protocol::new(contract),
        };
        workshop.write("echo.h", &header)?;
        for (name, text) in OTHERS {
            workshop.write(name, text)?;
        }
        for kernel in &KERNELS {
            let source = format!("{}.c", kernel.name);
            workshop.write(&source, kernel.source)?;
            workshop.clang(&["-O2", "-o", kernel.name, &source, "native.c"])?;
            let module = format!("{}.wasm", kernel.name);
            workshop.clang(&[&FOR_WASM[..], &["-o", &module, &source]].concat())?;
        }
        Ok(workshop)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        std::fs::write(self.folder.join(name), text).map_err(|error| format!("{name}: {error}"))
    }

    fn clang(&self, words: &[&str]) -> Result<(), String> {
        let built = Command::new("clang").args(words).current_dir(&self.folder).output();
        let output =
            built.map_err(|error| format!("clang: {error}; install it (Debian: apt-get install clang lld)"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!(
            "clang could not build; is lld installed (Debian: apt-get install clang lld)?\n{said}"
        ))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, String> {
        std::fs::read(self.folder.join(name)).map_err(|error| format!("{name}: {error}"))
    }

    /// A kernel's module.
    pub fn module(&self, kernel: &Kernel) -> Result<Vec<u8>, String> {
        self.read(&format!("{}.wasm", kernel.name))
    }

    /// The file that it is in.
    pub fn module_file(&self, kernel: &Kernel) -> PathBuf {
        self.folder.join(format!("{}.wasm", kernel.name))
    }

    /// The file of [`Self::large_module`].
    pub fn large_file(&self) -> PathBuf {
        self.folder.join("large.wasm")
    }

    /// A kernel's program for the machine.
    pub fn native(&self, kernel: &Kernel) -> PathBuf {
        Path::new(&self.folder).join(kernel.name)
    }

    /// The two that exchange a block of so many bytes so often.
    pub fn echo_modules(&self, bytes: u32, rounds: u32) -> Result<[Vec<u8>; 2], String> {
        let defines = [format!("-DBYTES={bytes}"), format!("-DROUNDS={rounds}")];
        let build = |name: &str| {
            let (module, source) = (format!("{name}.wasm"), format!("{name}.c"));
            let words = [
                &FOR_WASM[..],
                &[&defines[0], &defines[1], "-I.", "-o", &module, &source],
            ]
            .concat();
            self.clang(&words)?;
            self.read(&module)
        };
        Ok([build("echo_client")?, build("echo_server")?])
    }

    /// One module of all kernels, several times over: something to compile.
    pub fn large_module(&self) -> Result<Vec<u8>, String> {
        let mut objects = Vec::new();
        for copy in 0..6 {
            for kernel in &KERNELS {
                let object = format!("{}_{copy}.o", kernel.name);
                let (source, name) = (
                    format!("{}.c", kernel.name),
                    format!("-Drun=run_{}_{copy}", kernel.name),
                );
                let words = ["-c", &name, &source, "-o", &object];
                self.clang(&[&FOR_WASM[..4], &["-O2", "-Wno-everything"], &words[..]].concat())?;
                objects.push(object);
            }
        }
        let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
        self.clang(&[&FOR_WASM[..], &["-Wl,--export-all", "-o", "large.wasm"], &objects[..]].concat())?;
        self.read("large.wasm")
    }
}
