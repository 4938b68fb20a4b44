;; What the program compiles and runs in the system; `known.rs` has what its functions yield.
(module
  (memory (export "memory") 1 2)
  (data (i32.const 16) "gondwana")
  (type $unary (func (param i32) (result i32)))
  (table 4 funcref)
  (elem (i32.const 0) $double)
  (elem (i32.const 2) $count)
  (global $count (mut i32) (i32.const 0))
  (func $double (param i32) (result i32) (i32.shl (local.get 0) (i32.const 1)))
  (func $fib (export "fib") (param i32) (result i64)
    (if (result i64) (i32.lt_u (local.get 0) (i32.const 2))
      (then (i64.extend_i32_u (local.get 0)))
      (else (i64.add
        (call $fib (i32.sub (local.get 0) (i32.const 1)))
        (call $fib (i32.sub (local.get 0) (i32.const 2)))))))
  (func (export "load") (param i32) (result i32) (i32.load (local.get 0)))
  (func (export "load far") (param i32) (result i32) (i32.load offset=0xffff0000 (local.get 0)))
  (func (export "store") (param i32 i32) (i32.store (local.get 0) (local.get 1)))
  (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0)))
  (func (export "fill") (param i32 i32 i32) (memory.fill (local.get 0) (local.get 1) (local.get 2)))
  (func (export "copy") (param i32 i32 i32) (memory.copy (local.get 0) (local.get 1) (local.get 2)))
  (func (export "divide") (param i32 i32) (result i32) (i32.div_s (local.get 0) (local.get 1)))
  (func (export "truncate") (param f64) (result i32) (i32.trunc_f64_s (local.get 0)))
  (func (export "unreachable") unreachable)
  (func (export "call") (param i32 i32) (result i32)
    (call_indirect (type $unary) (local.get 1) (local.get 0)))
  (func $count (export "count") (result i32)
    (global.set $count (i32.add (global.get $count) (i32.const 1))) (global.get $count))
  (func (export "root") (param f64) (result f64) (f64.sqrt (local.get 0)))
  ;; The primes below a number, by a sieve in the memory from 256 on.
  (func (export "primes") (param $below i32) (result i32) (local $at i32) (local $multiple i32) (local $found i32)
    (memory.fill (i32.const 256) (i32.const 0) (local.get $below))
    (local.set $at (i32.const 2))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $below)))
        (if (i32.eqz (i32.load8_u offset=256 (local.get $at)))
          (then
            (local.set $found (i32.add (local.get $found) (i32.const 1)))
            (local.set $multiple (i32.mul (local.get $at) (local.get $at)))
            (block $marked
              (loop $mark
                (br_if $marked (i32.ge_u (local.get $multiple) (local.get $below)))
                (i32.store8 offset=256 (local.get $multiple) (i32.const 1))
                (local.set $multiple (i32.add (local.get $multiple) (local.get $at)))
                (br $mark)))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (local.get $found))
  ;; A number stirred so many times.
  (func (export "stir") (param $word i64) (param $times i32) (result i64)
    (loop $again
      (local.set $word (i64.mul (i64.rotl (local.get $word) (i64.const 23)) (i64.const 0x9e3779b97f4a7c15)))
      (local.set $word (i64.xor (local.get $word) (i64.shr_u (local.get $word) (i64.const 29))))
      (br_if $again (local.tee $times (i32.sub (local.get $times) (i32.const 1)))))
    (local.get $word))
  ;; Four products at once, and their sum.
  (func (export "lanes") (param i32) (result i32) (local $product v128)
    (local.set $product
      (i32x4.mul (i32x4.splat (local.get 0)) (v128.const i32x4 1 20 300 4000)))
    (i32.add
      (i32.add (i32x4.extract_lane 0 (local.get $product)) (i32x4.extract_lane 1 (local.get $product)))
      (i32.add (i32x4.extract_lane 2 (local.get $product)) (i32x4.extract_lane 3 (local.get $product)))))
  (func $deep (export "deep") (param i32) (result i32)
    (i32.add (i32.const 1) (call $deep (i32.add (local.get 0) (i32.const 1)))))
  (func (export "spin") (loop $for_ever (br $for_ever))))
