//! Blocks between two processes: the accessors as compiled and verified code, in both bounds modes.

mod support;
use sip::compile::Bounds;
use sip::exchange::HandleTable;
use sip::exec::{Exchange, Extern, Store, Val};
use sip::translate::TrapKind;
use support::{instantiate, program};

const MODULE: &str = r#"(module
  (import "gondwana:heap" "alloc" (func $alloc (param i32) (result i32)))
  (import "gondwana:heap" "free" (func $free (param i32)))
  (import "gondwana:heap" "len" (func $len (param i32) (result i32)))
  (import "gondwana:heap" "ld64" (func $ld64 (param i32 i32) (result i64)))
  (import "gondwana:heap" "st64" (func $st64 (param i32 i32 i64)))
  (import "gondwana:heap" "ld8" (func $ld8 (param i32 i32) (result i32)))
  (import "gondwana:heap" "copy_in" (func $in (param i32 i32 i32 i32)))
  (import "gondwana:heap" "copy_out" (func $out (param i32 i32 i32 i32)))
  (import "gondwana:heap" "put" (func $slot (param i32 i32 i32)))
  (import "gondwana:heap" "take" (func $take (param i32 i32) (result i32)))
  (memory 1) (data (i32.const 0) "\01\02\03\04\05\06\07\08\09\0a\0b\0c\0d\0e\0f\10")
  (func (export "in") (param i32 i32 i32 i32)
    (call $in (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func (export "out") (param i32 i32 i32 i32)
    (call $out (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func (export "slot") (param i32 i32 i32) (call $slot (local.get 0) (local.get 1) (local.get 2)))
  (func (export "take") (param i32 i32) (result i32) (call $take (local.get 0) (local.get 1)))
  (func (export "alloc") (param i32) (result i32) (call $alloc (local.get 0)))
  (func (export "free") (param i32) (call $free (local.get 0)))
  (func (export "len") (param i32) (result i32) (call $len (local.get 0)))
  (func (export "get") (param i32 i32) (result i64) (call $ld64 (local.get 0) (local.get 1)))
  (func (export "byte") (param i32 i32) (result i32) (return_call $ld8 (local.get 0) (local.get 1)))
  (func (export "put") (param i32 i32 i64) (call $st64 (local.get 0) (local.get 1) (local.get 2))))"#;

struct Sip {
    store: Box<Store>,
    instance: usize,
}

impl Sip {
    fn new(heap: &std::sync::Arc<Exchange>, bounds: Bounds) -> Self {
        let program = program(MODULE, bounds);
        let mut store = Store::new().expect("memory");
        store.join(heap);
        let instance = instantiate(&mut store, &program).expect("links");
        Self { store, instance }
    }
    fn call(&mut self, name: &str, args: &[Val]) -> Result<Vec<Val>, TrapKind> {
        let Some(Extern::Func(handle)) = self.store.export(self.instance, name) else {
            panic!("{name}")
        };
        self.store.call(handle, args).map_err(|trap| trap.kind)
    }
    fn alloc(&mut self, bytes: i32) -> Val {
        self.call("alloc", &[Val::I32(bytes)]).expect("room")[0]
    }
    fn table(&mut self) -> &mut HandleTable {
        self.store.member().expect("joined").blocks()
    }
}

fn number(handle: Val) -> u32 {
    match handle {
        Val::I32(number) => number.cast_unsigned(),
        other => panic!("a handle: {other:?}"),
    }
}

#[test]
fn blocks_move_between_processes() {
    for bounds in [Bounds::Guard, Bounds::Explicit] {
        let heap = Exchange::new(1 << 20, 64, 4).expect("memory");
        let (mut a, mut b) = (Sip::new(&heap, bounds), Sip::new(&heap, bounds));
        let handle = a.alloc(100);
        assert_eq!(a.call("put", &[handle, Val::I32(92), Val::I64(77)]), Ok(vec![]));
        for outside in [93, 100, -1, i32::MIN] {
            assert_eq!(
                a.call("put", &[handle, Val::I32(outside), Val::I64(1)]),
                Err(TrapKind::BlockBounds)
            );
            assert_eq!(a.call("get", &[handle, Val::I32(outside)]), Err(TrapKind::BlockBounds));
        }
        // A forged handle, in a process that was given none.
        assert_eq!(b.call("get", &[handle, Val::I32(0)]), Err(TrapKind::BlockBounds));
        let block = a.table().send(heap.owners(), number(handle)).expect("owned");
        assert_eq!(a.call("len", &[handle]), Ok(vec![Val::I32(0)]));
        assert_eq!(a.call("get", &[handle, Val::I32(92)]), Err(TrapKind::BlockBounds));
        assert_eq!(a.call("free", &[handle]), Err(TrapKind::Service));
        let theirs = b.table().accept(heap.owners(), block).expect("in flight");
        let theirs = Val::I32(theirs.cast_signed());
        assert_eq!(b.call("get", &[theirs, Val::I32(92)]), Ok(vec![Val::I64(77)]));
        assert_eq!(b.call("byte", &[theirs, Val::I32(92)]), Ok(vec![Val::I32(77)]));
        assert_eq!(b.call("free", &[theirs]), Ok(vec![]));
        assert_eq!(b.call("free", &[theirs]), Err(TrapKind::Service));
        assert_eq!(b.call("len", &[theirs]), Ok(vec![Val::I32(0)]));
        // The memory comes back, and nothing is left in it.
        let again = a.alloc(100);
        assert_eq!(a.call("get", &[again, Val::I32(92)]), Ok(vec![Val::I64(0)]));
        let owned = a.table().block(number(again)).expect("owned");
        drop(a);
        assert_eq!(heap.owners().owner(owned), None);
        drop(b);
        assert_eq!(heap.owners().owned(), 0);
    }
}

#[test]
fn copies_stay_inside_both() {
    for bounds in [Bounds::Guard, Bounds::Explicit] {
        let heap = Exchange::new(1 << 20, 64, 4).expect("memory");
        let mut a = Sip::new(&heap, bounds);
        let handle = a.alloc(100);
        let int = Val::I32;
        let copy = |a: &mut Sip, name: &str, offset: i32, at: i32, bytes: i32| {
            a.call(name, &[handle, int(offset), int(at), int(bytes)]).map(|_| ())
        };
        // The memory begins with the bytes 1 to 16.
        assert_eq!(copy(&mut a, "in", 90, 0, 10), Ok(()));
        assert_eq!(
            a.call("get", &[handle, int(90)]),
            Ok(vec![Val::I64(0x0807_0605_0403_0201)])
        );
        assert_eq!(copy(&mut a, "out", 92, 65534, 2), Ok(()));
        assert_eq!(copy(&mut a, "in", 0, 65534, 2), Ok(()));
        assert_eq!(a.call("get", &[handle, int(0)]), Ok(vec![Val::I64(0x0403)]));
        for (offset, at, bytes, trap) in [
            (91, 0, 10, TrapKind::BlockBounds),
            (-1, 0, 1, TrapKind::BlockBounds),
            (0, 0, 101, TrapKind::BlockBounds),
            (0, 65535, 2, TrapKind::MemoryBounds),
            (0, -1, 2, TrapKind::MemoryBounds),
            (0, 0, -1, TrapKind::MemoryBounds),
        ] {
            for name in ["in", "out"] {
                assert_eq!(
                    copy(&mut a, name, offset, at, bytes),
                    Err(trap),
                    "{name} {offset} {at} {bytes}"
                );
            }
        }
        let stale = a.call("out", &[int(77), int(0), int(0), int(1)]);
        assert_eq!(stale, Err(TrapKind::BlockBounds));
    }
}

/// A process on the stack and in the memory of one that has ended finds nothing of it.
#[test]
fn pooled_processes_begin_with_zeros() {
    const TEXT: &str = r#"(module (memory 1 2)
      (func (export "look") (param i32) (result i32) (i32.load (local.get 0)))
      (func (export "write") (param i32) (i32.store (local.get 0) (i32.const 77)))
      (func (export "grow") (result i32) (memory.grow (i32.const 1))))"#;
    let pool = sip::exec::Pool::new();
    for bounds in [Bounds::Guard, Bounds::Explicit] {
        let program = program(TEXT, bounds);
        for round in 0..10 {
            let mut store = Store::pooled(&pool).expect("memory");
            let instance = store.instantiate(&program, &[]).expect("links");
            let mut call = |name: &str, args: &[Val]| {
                let Some(Extern::Func(handle)) = store.export(instance, name) else {
                    panic!("{name}")
                };
                store.call(handle, args).map_err(|trap| trap.kind)
            };
            assert_eq!(call("look", &[Val::I32(500)]), Ok(vec![Val::I32(0)]));
            assert_eq!(call("write", &[Val::I32(500)]), Ok(vec![]));
            assert_eq!(call("look", &[Val::I32(65536)]), Err(TrapKind::MemoryBounds), "{round}");
            if round % 3 == 0 {
                assert_eq!(call("grow", &[]), Ok(vec![Val::I32(1)]));
                assert_eq!(call("look", &[Val::I32(65536)]), Ok(vec![Val::I32(0)]));
            }
        }
    }
}

/// The same where nothing ran: what segments and the host wrote is gone as well.
#[test]
fn pooled_processes_that_never_ran_leave_nothing() {
    const FILLED: &str = r#"(module (memory (export "memory") 1)
      (data (i32.const 70) "left") (data (i32.const 65530) "behind"))"#;
    const EMPTY: &str = r#"(module (memory (export "memory") 1))"#;
    let pool = sip::exec::Pool::new();
    for bounds in [Bounds::Guard, Bounds::Explicit] {
        let programs = [program(FILLED, bounds), program(EMPTY, bounds)];
        for round in 0..12 {
            let mut store = Store::pooled(&pool).expect("memory");
            let instance = store.instantiate(&programs[round % 2], &[]).expect("links");
            let Some(Extern::Memory(memory)) = store.export(instance, "memory") else {
                panic!("memory")
            };
            let filled = round % 2 == 0;
            if filled && round % 3 == 0 {
                continue;
            }
            let bytes = store.memory_bytes(memory).expect("there");
            let written = bytes.iter().filter(|byte| **byte != 0).count();
            assert_eq!(written, if filled { 10 } else { 0 }, "{bounds:?} {round}");
            bytes[30_000 + round] = 1;
        }
    }
}

#[test]
fn trees_of_blocks() {
    let heap = Exchange::new(1 << 20, 64, 4).expect("memory");
    let (mut a, mut b) = (Sip::new(&heap, Bounds::Guard), Sip::new(&heap, Bounds::Guard));
    let (root, child) = (a.alloc(10), a.alloc(20));
    let int = Val::I32;
    assert_eq!(a.call("slot", &[root, int(3), root]), Err(TrapKind::Service));
    assert_eq!(a.call("slot", &[root, int(64), child]), Err(TrapKind::Service));
    assert_eq!(a.call("slot", &[root, int(3), child]), Ok(vec![]));
    assert_eq!(a.call("len", &[child]), Ok(vec![int(0)]));
    let block = a.table().send(heap.owners(), number(root)).expect("owned");
    assert_eq!(a.call("take", &[root, int(3)]), Err(TrapKind::Service));
    let root = b.table().accept(heap.owners(), block).expect("in flight");
    let root = int(root.cast_signed());
    let child = b.call("take", &[root, int(3)]).expect("there")[0];
    assert_eq!(b.call("len", &[child]), Ok(vec![int(20)]));
    assert_eq!(b.call("take", &[root, int(3)]), Ok(vec![int(0)]));
    assert_eq!(b.call("slot", &[root, int(3), child]), Ok(vec![]));
    assert_eq!(b.call("free", &[root]), Ok(vec![]));
    assert_eq!(heap.owners().owned(), 0);
}
