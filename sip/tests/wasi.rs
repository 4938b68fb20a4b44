//! WASI over a system of the test's own: what `sip::wasi` sees to by itself, whatever the system does.

use sip::compile::{Options, compile};
use sip::exec::{Extern, HostError, Program, Store};
use sip::verify::verify;
use sip::wasi::{At, Errno, FileId, How, Kind, Stat, System, Wasi};
use std::cell::RefCell;
use std::rc::Rc;

/// A directory in which a path that begins with `d` is a directory, and everything else a file. It opens whatever it is
/// asked for, however.
#[derive(Default)]
struct Lenient {
    kinds: Vec<Kind>,
    /// The descriptors that were closed.
    closed: Rc<RefCell<Vec<FileId>>>,
}

impl System for Lenient {
    fn arguments(&self) -> &[String] {
        &[]
    }
    fn environment(&self) -> &[String] {
        &[]
    }
    fn write(&mut self, _: u32, bytes: &[u8]) -> Result<usize, Errno> {
        Ok(bytes.len())
    }
    fn read(&mut self, _: u32, _: &mut [u8]) -> Result<usize, Errno> {
        Ok(0)
    }
    fn clock(&mut self, _: u32) -> Result<u64, Errno> {
        Err(Errno::NotSupported)
    }
    fn random(&mut self, bytes: &mut [u8]) {
        bytes.fill(4);
    }
    fn directories(&self) -> Vec<(String, FileId)> {
        vec![("/".into(), FileId(99))]
    }
    fn open(&mut self, at: At<'_>, _: How) -> Result<FileId, Errno> {
        let kind = if at.path.starts_with('d') {
            Kind::Directory
        } else {
            Kind::Regular
        };
        self.kinds.push(kind);
        Ok(FileId(self.kinds.len() as u32 - 1))
    }
    fn close(&mut self, file: FileId) {
        self.closed.borrow_mut().push(file);
    }
    fn stat(&mut self, file: FileId) -> Result<Stat, Errno> {
        let kind = self.kinds.get(file.0 as usize).copied().ok_or(Errno::BadDescriptor)?;
        Ok(Stat {
            kind,
            ..Stat::default()
        })
    }
}

/// The status with which a program ends, and what the system closed.
fn run(body: &str) -> (i32, Vec<FileId>) {
    let text = format!(
        r#"(module
        (import "wasi_snapshot_preview1" "path_open"
          (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "fd_sync" (func $sync (param i32) (result i32)))
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 1) (data (i32.const 8) "df")
        (func $try (param $at i32) (param $flags i32) (param $rights i64) (result i32)
          (call $open (i32.const 3) (i32.const 0) (local.get $at) (i32.const 1) (local.get $flags) (local.get $rights)
            (i64.const 0) (i32.const 0) (i32.const 0)))
        (func (export "_start") (call $exit {body})))"#
    );
    let image = compile(&wat::parse_str(text).expect("text"), Options::default()).expect("it compiles");
    let program = Program::load(verify(image).expect("it is proved")).expect("memory");
    let mut store = Store::new().expect("memory");
    let system = Lenient::default();
    let closed = system.closed.clone();
    let wasi = Wasi::new(system);
    let module = program.image().module.clone();
    let imports: Vec<Extern> = wasi.imports(&mut store, &module).into_iter().flatten().collect();
    let instance = store.instantiate(&program, &imports).expect("all imports are met");
    if let Some(Extern::Memory(memory)) = store.export(instance, "memory") {
        wasi.set_memory(memory);
    }
    let Some(Extern::Func(start)) = store.export(instance, "_start") else {
        panic!("no _start");
    };
    let status = match store.call(start, &[]) {
        Err(trap) => match trap.host {
            Some(HostError::Exit(status)) => status,
            other => panic!("{other:?}"),
        },
        Ok(_) => panic!("it ended without a status"),
    };
    let closed = closed.borrow().clone();
    (status, closed)
}

const DIRECTORY: i32 = 2;

/// Rights to read (2), to write (64), to extend (256) and to set the size (1 << 22).
#[test]
fn a_directory_is_not_opened_for_writing() {
    for rights in [64, 64 | 2, 256, 1 << 22] {
        for flags in [0, DIRECTORY] {
            let tried = run(&format!(
                "(call $try (i32.const 8) (i32.const {flags}) (i64.const {rights}))"
            ));
            // And what the system had opened is closed again.
            assert_eq!(tried, (Errno::IsDirectory as i32, vec![FileId(0)]), "{flags} {rights}");
        }
        let file = run(&format!("(call $try (i32.const 9) (i32.const 0) (i64.const {rights}))"));
        assert_eq!(file, (0, vec![]));
    }
    for rights in [0, 2, 1 << 14] {
        let read = run(&format!(
            "(call $try (i32.const 8) (i32.const {DIRECTORY}) (i64.const {rights}))"
        ));
        assert_eq!(read, (0, vec![]), "{rights}");
    }
}

/// A call that a system leaves out answers that there is no such call.
#[test]
fn what_a_system_leaves_out_is_no_call() {
    let synced = run("(i32.add (call $try (i32.const 9) (i32.const 0) (i64.const 2)) (call $sync (i32.const 4)))");
    assert_eq!(synced, (Errno::NoSystemCall as i32, vec![]));
}
