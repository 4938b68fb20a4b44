//! Blocks between two processes: the accessors as compiled and verified code, in both bounds modes.

use sip::compile::{Bounds, Cpu, Options, compile};
use sip::exchange::Process;
use sip::exec::{Blocks, Exchange, Extern, Program, Store, Val};
use sip::module::EntityType;
use sip::translate::TrapKind;
use sip::verify::verify;

const MODULE: &str = r#"(module
  (import "gondwana:heap" "alloc" (func $alloc (param i32) (result i32)))
  (import "gondwana:heap" "free" (func $free (param i32)))
  (import "gondwana:heap" "len" (func $len (param i32) (result i32)))
  (import "gondwana:heap" "ld64" (func $ld64 (param i32 i32) (result i64)))
  (import "gondwana:heap" "st64" (func $st64 (param i32 i32 i64)))
  (import "gondwana:heap" "ld8" (func $ld8 (param i32 i32) (result i32)))
  (func (export "alloc") (param i32) (result i32) (call $alloc (local.get 0)))
  (func (export "free") (param i32) (call $free (local.get 0)))
  (func (export "len") (param i32) (result i32) (call $len (local.get 0)))
  (func (export "get") (param i32 i32) (result i64) (call $ld64 (local.get 0) (local.get 1)))
  (func (export "byte") (param i32 i32) (result i32) (return_call $ld8 (local.get 0) (local.get 1)))
  (func (export "put") (param i32 i32 i64) (call $st64 (local.get 0) (local.get 1) (local.get 2))))"#;

struct Sip {
    store: Box<Store>,
    blocks: Blocks,
    instance: usize,
}

impl Sip {
    fn new(heap: &std::sync::Arc<Exchange>, process: u32, bounds: Bounds) -> Self {
        let image =
            compile(&wat::parse_str(MODULE).expect("text"), Options { bounds, cpu: Cpu::V2 }).expect("compiles");
        let module = image.module.clone();
        let program = Program::load(verify(image).expect("proved")).expect("memory");
        let mut store = Store::new().expect("memory");
        let blocks = store.join_exchange(heap, Process(process));
        let imports: Vec<Extern> = module
            .imports
            .iter()
            .map(|import| {
                let EntityType::Func(ty) = import.ty else {
                    panic!("a function")
                };
                blocks
                    .import(&mut store, &import.name, &module.types[ty as usize])
                    .expect("known")
            })
            .collect();
        let instance = store.instantiate(&program, &imports).expect("links");
        Self {
            store,
            blocks,
            instance,
        }
    }
    fn call(&mut self, name: &str, args: &[Val]) -> Result<Vec<Val>, TrapKind> {
        let Some(Extern::Func(handle)) = self.store.export(self.instance, name) else {
            panic!("{name}")
        };
        self.store.call(handle, args).map_err(|trap| trap.kind)
    }
}

#[test]
fn blocks_move_between_processes() {
    for bounds in [Bounds::Guard, Bounds::Explicit] {
        let heap = Exchange::new(1 << 20, 64).expect("memory");
        let (mut a, mut b) = (Sip::new(&heap, 1, bounds), Sip::new(&heap, 2, bounds));
        let handle = a.call("alloc", &[Val::I32(100)]).expect("room")[0];
        let Val::I32(number) = handle else { panic!("a handle") };
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
        let block = a
            .blocks
            .table()
            .borrow_mut()
            .send(heap.owners(), number.cast_unsigned())
            .expect("owned");
        assert_eq!(a.call("len", &[handle]), Ok(vec![Val::I32(0)]));
        assert_eq!(a.call("get", &[handle, Val::I32(92)]), Err(TrapKind::BlockBounds));
        assert_eq!(a.call("free", &[handle]), Err(TrapKind::Host));
        let theirs = b
            .blocks
            .table()
            .borrow_mut()
            .accept(heap.owners(), block)
            .expect("in flight");
        let theirs = Val::I32(theirs.cast_signed());
        assert_eq!(b.call("get", &[theirs, Val::I32(92)]), Ok(vec![Val::I64(77)]));
        assert_eq!(b.call("byte", &[theirs, Val::I32(92)]), Ok(vec![Val::I32(77)]));
        assert_eq!(b.call("free", &[theirs]), Ok(vec![]));
        assert_eq!(b.call("free", &[theirs]), Err(TrapKind::Host));
        assert_eq!(b.call("len", &[theirs]), Ok(vec![Val::I32(0)]));
        // The memory comes back, and nothing is left in it.
        let again = a.call("alloc", &[Val::I32(100)]).expect("room")[0];
        assert_eq!(a.call("get", &[again, Val::I32(92)]), Ok(vec![Val::I64(0)]));
        let owned = a
            .blocks
            .table()
            .borrow()
            .block(match again {
                Val::I32(n) => n.cast_unsigned(),
                _ => 0,
            })
            .expect("owned");
        drop(a);
        assert_eq!(heap.owners().owner(owned), None);
    }
}
