//! Loops that count in every way and index memory by what they count: what the compiler knows of their numbers
//! (`sip/src/refine`) must not change what they do. Several hundred are made by dice, and wasmi says what is right.

#[path = "support/theirs.rs"]
mod support;

use sip::compile::{Bounds, Care, Options, compile, compile_judged};
use sip::exec::{Extern, Program, Store, Val};
use sip::verify::verify;
use support::theirs;

/// Dice with a memory (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one_of<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Constants that are near to where numbers wrap, to the memory's end and to its start.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "3",
    "4",
    "8",
    "-1",
    "-4",
    "-8",
    "40",
    "65500",
    "65536",
    "-65536",
    "2147483647",
    "-2147483648",
];
const STEPS: [&str; 10] = ["1", "-1", "2", "4", "-4", "12", "-16", "80", "2147483648", "0"];
const COMPARISONS: [&str; 8] = ["ne", "eq", "lt_u", "le_u", "gt_u", "lt_s", "le_s", "gt_s"];

/// A module with a loop over two counters. At most 300 turns.
#[allow(clippy::too_many_lines, reason = "one text, and what fills it")]
fn module(dice: &mut Dice) -> String {
    let mut number = || {
        let of = NUMBERS[dice.below(NUMBERS.len() as u64) as usize];
        match dice.below(4) {
            0 => "(local.get $a)".to_string(),
            _ => format!("(i32.const {of})"),
        }
    };
    let (first, second, limit) = (number(), number(), number());
    let second = match dice.below(3) {
        0 => format!("(i32.add (local.get $i) (i32.const {}))", dice.one_of(&NUMBERS)),
        _ => second,
    };
    let (step, other) = (dice.one_of(&STEPS), dice.one_of(&STEPS));
    let other = if dice.below(2) == 0 { step } else { other };
    let before = ["(i32.const 0)", "(i32.{} (local.get $i) {})"][dice.below(2) as usize]
        .replacen("{}", dice.one_of(&COMPARISONS), 1)
        .replacen("{}", &limit, 1);
    let counter = dice.one_of(&["$i", "$i", "$j", "$n"]);
    let behind = format!("(i32.{} (local.get {counter}) {limit})", dice.one_of(&COMPARISONS));
    let behind = match dice.below(3) {
        0 => format!("(i32.eqz {behind})"),
        _ => behind,
    };
    let inner = match dice.below(3) {
        0 => {
            "(local.set $k (i32.const 0)) (loop $in
               (local.set $s (i64.add (local.get $s) (i64.load8_u offset=9 (i32.add (local.get $k) (i32.const 7)))))
               (br_if $in (i32.ne (local.tee $k (i32.add (local.get $k) (i32.const 3))) (i32.const 30))))"
        }
        _ => "",
    };
    let load = dice.one_of(&["i32.load8_u", "i32.load8_s", "i32.load16_u", "i32.load"]);
    let (add, offset) = (dice.one_of(&NUMBERS), dice.one_of(&["0", "16", "65530", "100000"]));
    let pick = dice.one_of(&[
        "(i32.and (local.get $x) (i32.const 255))",
        "(i32.eq (i32.and (local.get $x) (i32.const 255)) (i32.load8_u (i32.const 5)))",
        "(i32.div_u (local.get $x) (i32.const 10))",
        "(i32.rem_u (local.get $x) (i32.const 7))",
        "(i32.lt_u (i32.and (local.get $x) (i32.const 255)) (i32.const 100))",
    ]);
    let wide = dice.one_of(&["-3", "4294967290", "12884901888", "5"]);
    // The next number, made before this one is needed for the last time.
    let early = match dice.below(4) {
        0 => format!("(local.set $t (i32.add (local.get $i) (i32.const {step})))"),
        1 => "(local.set $t (i32.and (i32.mul (local.get $i) (i32.const 12345)) (i32.const 65535)))".to_string(),
        2 => "(local.set $t (i32.load16_u (i32.and (local.get $i) (i32.const 32767))))".to_string(),
        _ => String::new(),
    };
    let early = match dice.below(2) {
        0 => format!(
            "{early} (local.set $s (i64.add (local.get $s) (i64.load8_u (i32.and (local.get $t) (i32.const 4095)))))"
        ),
        _ => format!("{early} (local.set $s (i64.add (local.get $s) (i64.load8_u (local.get $t))))"),
    };
    let late = dice.one_of(&[
        "",
        "(i32.load8_u offset=3 (i32.wrap_i64 (local.get $w)))",
        "(call_indirect (result i32) (local.get $j))",
        "(call_indirect (result i32) (local.get $i))",
        "(call_indirect (result i32) (i32.add (local.get $n) (i32.const -1)))",
        "(call_indirect (result i32) (i32.wrap_i64 (local.get $w)))",
        "(i32.load8_u offset=1 (i32.load8_u offset=9 (local.get $j)))",
        "(block $d (result i32) (block $e (block $f (br_table $e $f $f $e (local.get $j))) (br $d (i32.const 7))) (i32.const 9))",
    ]);
    let late = match late {
        "" => String::new(),
        late => format!("(local.set $s (i64.add (local.get $s) (i64.extend_i32_u {late})))"),
    };
    let next = match dice.below(5) {
        0 => "(local.set $i (local.get $t))".to_string(),
        1 => format!("(if (local.get $x) (then (local.set $i (i32.add (local.get $i) (i32.const {step})))))"),
        2 => format!(
            "(if (i32.and (local.get $n) (i32.const 1)) (then (local.set $i (local.get $t))) (else (local.set $j (local.get $i)) (local.set $i (i32.add (local.get $i) (i32.const {step})))))"
        ),
        _ => format!("(local.set $i (i32.add (local.get $i) (i32.const {step})))"),
    };
    // Another exit, and a loop within that carries on from where this one is.
    let exit = match dice.below(4) {
        0 => format!(
            "(br_if $out (i32.{} (local.get $j) {limit}))",
            dice.one_of(&COMPARISONS)
        ),
        1 => format!(
            "(local.set $k (local.get $i)) (local.set $m (i32.const 5)) (loop $again
               (local.set $s (i64.add (local.get $s) (i64.load8_u (local.get $k))))
               (local.set $k (i32.add (local.get $k) (i32.const {other})))
               (br_if $again (local.tee $m (i32.add (local.get $m) (i32.const -1)))))"
        ),
        _ => String::new(),
    };
    format!(
        r#"(module (memory 1) (table 60 funcref) (elem (i32.const 0) $one $two $one $one $two)
          (elem (i32.const 38) $two $two $one $one $two $two $two $one $one $two)
          (func $one (result i32) (i32.const 3)) (func $two (result i32) (i32.load (i32.const 2)))
          (data (i32.const 0) "\80\07\ff\10abcdefghijklmnopqrstuvwxyz0123456789")
          (data (i32.const 65490) "the end of the memory, which is near now")
          (func (export "run") (param $a i32) (result i64)
            (local $i i32) (local $j i32) (local $k i32) (local $n i32) (local $x i32) (local $t i32) (local $m i32) (local $s i64) (local $w i64)
            (local.set $i {first}) (local.set $j {second}) (local.set $w (i64.const {wide}))
            (block $out (loop $top
              (local.set $n (i32.add (local.get $n) (i32.const 1)))
              (br_if $out (i32.gt_u (local.get $n) (i32.const 300)))
              (br_if $out {before})
              {inner}
              {early}
              (local.set $x ({load} offset={offset} (i32.add (local.get $i) (i32.const {add}))))
              (local.set $x (i32.add (local.get $x) (i32.load8_u (i32.and (local.get $j) (i32.const 4095)))))
              (local.set $x {pick})
              (block $c (block $b (block $a
                (br_table $a $c $b $b $c (local.get $x)))
                (local.set $s (i64.add (local.get $s) (i64.const 5))))
                (local.set $s (i64.mul (local.get $s) (i64.const 3))))
              (local.set $s (i64.add (i64.mul (local.get $s) (i64.const 31)) (i64.extend_i32_u (local.get $x))))
              {late}
              {exit}
              {next}
              (local.set $j (i32.add (local.get $j) (i32.const {other})))
              (local.set $w (i64.extend_i32_u (i32.add (i32.wrap_i64 (local.get $w)) (i32.const {step}))))
              (br_if $top {behind})))
            (i64.add (i64.add (local.get $s) (local.get $w))
              (i64.add (i64.extend_i32_u (i32.add (local.get $i) (i32.const -4))) (i64.extend_i32_s (local.get $j))))))"#
    )
}

/// Wasmi's result, or nothing after a trap.
fn right(bytes: &[u8], argument: i32) -> Option<i64> {
    let engine = wasmi::Engine::default();
    let module = wasmi::Module::new(&engine, bytes).expect("valid");
    let mut store = wasmi::Store::new(&engine, ());
    let linker = wasmi::Linker::<()>::new(&engine);
    let instance = linker.instantiate_and_start(&mut store, &module).expect("it starts");
    let run = instance.get_func(&store, "run").expect("exported");
    let mut results = [wasmi::Val::I64(0)];
    run.call(&mut store, &[theirs(&Val::I32(argument))], &mut results)
        .ok()?;
    results[0].i64()
}

/// Every way to compile; the first two are the usual ones.
const WAYS: [(Bounds, Care); 5] = [
    (Bounds::Guard, Care::Fast),
    (Bounds::Explicit, Care::Fast),
    (Bounds::Guard, Care::Plain),
    (Bounds::Explicit, Care::Plain),
    (Bounds::Guard, Care::Compared),
];

/// This engine's result, for each argument, all functions compiled with this care and proved.
fn ours(text: &str, bytes: &[u8], way: (Bounds, Care), arguments: &[i32]) -> Vec<Option<i64>> {
    let options = Options {
        bounds: way.0,
        ..Options::default()
    };
    let all = |functions: usize, before| {
        if before < way.1 {
            (0..functions).collect()
        } else {
            Vec::new()
        }
    };
    let image = compile_judged(bytes, options, |image, before| all(image.functions.len(), before));
    let verified = match verify(image.expect("it compiles")) {
        Ok(verified) => verified,
        Err(violation) => panic!("{way:?}: {violation:?}: {text}"),
    };
    let program = Program::load(verified).expect("memory");
    let mut store = Store::new().expect("memory");
    let instance = store.instantiate(&program, &[]).expect("it starts");
    let Some(Extern::Func(run)) = store.export(instance, "run") else {
        panic!("run is not exported");
    };
    let mut call = |argument: &i32| match store.call(run, &[Val::I32(*argument)]) {
        Ok(results) => match results[..] {
            [Val::I64(value)] => Some(value),
            _ => panic!("{results:?}"),
        },
        Err(_) => None,
    };
    arguments.iter().map(&mut call).collect()
}

/// Loops of one seed. `SIP_LOOPS=FROM..TO cargo test -p sip --test loops` has them made from other seeds than the fixed one.
const EACH: u32 = 500;

#[test]
fn loops_do_what_they_say() {
    let given = std::env::var("SIP_LOOPS").ok().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse::<u64>().ok()?..to.parse().ok()?)
    });
    for seed in given.unwrap_or(0..1) {
        let mut dice = Dice(0x5eed_5eed_5eed ^ seed << 48);
        let (mut returned, mut trapped) = (0, 0);
        for number in 0..EACH {
            let text = module(&mut dice);
            let bytes = wat::parse_str(&text).expect("a good text");
            let arguments = [0, 40, 65_500, -8];
            let right: Vec<_> = arguments.iter().map(|argument| right(&bytes, *argument)).collect();
            let good = right.iter().flatten().count();
            returned += good;
            trapped += right.len() - good;
            // With more care few are compiled, and then it must be right.
            let ways = if number % 5 == 0 { &WAYS[..] } else { &WAYS[..2] };
            for way in ways {
                assert_eq!(
                    ours(&text, &bytes, *way, &arguments),
                    right,
                    "seed {seed}, {way:?}: {text}"
                );
            }
        }
        assert!(returned > 200 && trapped > 200, "{returned} {trapped}");
    }
}

/// An index that a loop carries, needed still when the next one is made already: the verifier has no name for it then,
/// unless the compiler gives it one. `{use}` is the use of this index, `{next}` the next one's.
const EARLY: &str = r#"(module (memory 1) (table 60 funcref) (elem (i32.const 36) $one $one $one $one $one)
  (func $one (result i32) (i32.const 3))
  (func (export "run") (param $a i32) (result i64)
    (local $i i32) (local $t i32) (local $n i32) (local $s i32) (local $w i64)
    (local.set $i (i32.const 40)) (local.set $w (i64.const 40))
    (loop $top
      (local.set $t {next})
      (local.set $s (i32.add (local.get $s) (i32.load8_u (local.get $t))))
      (local.set $s (i32.add (local.get $s) {use}))
      (local.set $i (local.get $t))
      (local.set $w (i64.extend_i32_u (local.get $t)))
      (br_if $top (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (local.get $a))))
    (i64.extend_i32_u (local.get $s))))"#;

#[test]
fn an_index_of_the_turn_before_has_a_name() {
    let uses = [
        "(i32.load8_u (local.get $i))",
        "(i32.load8_u offset=65400 (local.get $i))",
        "(i32.load8_u offset=65400 (i32.add (local.get $i) (i32.const 3)))",
        "(i32.load8_u offset=65400 (i32.wrap_i64 (local.get $w)))",
        "(call_indirect (result i32) (local.get $i))",
        "(call_indirect (result i32) (i32.wrap_i64 (local.get $w)))",
        "(block $c (result i32) (block $b (block $a (br_table $a $b $a (local.get $i))) (br $c (i32.const 7))) (i32.const 9))",
    ];
    let nexts = [
        "(i32.add (local.get $i) (i32.const -1))",
        "(i32.add (i32.and (i32.mul (local.get $i) (i32.const 12345)) (i32.const 3)) (i32.const 36))",
        "(i32.load8_u (i32.and (local.get $i) (i32.const 32767)))",
        "(i32.mul (local.get $i) (i32.const 1638))",
    ];
    for (this, next) in uses.iter().flat_map(|this| nexts.map(|next| (*this, next))) {
        let text = EARLY.replacen("{use}", this, 1).replacen("{next}", next, 1);
        let bytes = wat::parse_str(&text).expect("a good text");
        let arguments = [0, 2, 4, 70];
        let right = arguments.map(|argument| right(&bytes, argument));
        assert!(right[0].is_some(), "{text}");
        for way in WAYS {
            assert_eq!(ours(&text, &bytes, way, &arguments), right, "{way:?}: {text}");
        }
    }
}

/// Numbers of which little is known, or less than it seems: each was computed wrongly once.
#[test]
fn little_is_known_of_these_numbers() {
    let loops = |ty: &str, first: &str, bits: &str, end: &str| {
        let low = |of: &str| format!("({ty}.shr_u ({ty}.shl {of} ({ty}.const {bits})) ({ty}.const {bits}))");
        let (now, next) = (
            low("(local.get $i)"),
            low(&format!("({ty}.add (local.get $i) ({ty}.const 1))")),
        );
        let wide = if ty == "i32" {
            "(i64.extend_i32_u (local.get $i))"
        } else {
            "(local.get $i)"
        };
        format!(
            r#"(module (func (export "run") (param i32) (result i64) (local $i {ty})
              (local.set $i ({ty}.const {first}))
              (block $out (loop $top
                (br_if $out ({ty}.eq {now} ({ty}.const {end})))
                (local.set $i {next})
                (br $top)))
              (i64.add {wide} (i64.extend_i32_u (local.get 0)))))"#
        )
    };
    let several = |first: &str, then: &str| {
        format!(
            r#"(module (memory 1)
              (func $two (result i32 i32) (i32.const {first}) (i32.const 1))
              (data (i32.const 0) "\07\08\09")
              (func (export "run") (param $c i32) (result i64) (local $x i32)
                (if (local.get $c) (then (call $two) (drop) (local.set $x)))
                (i64.extend_i32_u {then})))"#
        )
    };
    for text in [
        loops("i64", "300", "56", "44"),
        loops("i64", "65580", "48", "44"),
        loops("i32", "300", "24", "44"),
        loops("i32", "65580", "16", "44"),
        several("6", "(i32.and (local.get $x) (i32.const 3))"),
        several("-100", "(i32.load8_u (i32.add (local.get $x) (i32.const 100)))"),
    ] {
        let bytes = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let arguments = [0, 1, 7];
        let right: Vec<_> = arguments.iter().map(|argument| right(&bytes, *argument)).collect();
        for way in WAYS {
            assert_eq!(ours(&text, &bytes, way, &arguments), right, "{way:?}: {text}");
        }
    }
}

/// A trap is named by its place in the module, whichever function it is in.
#[test]
fn traps_are_where_the_module_has_them() {
    let text = r"(module (memory 1)
      (func (param i32) (result i32) (i32.add (i32.const 1) (i32.load (local.get 0))))
      (func (param i32) (result i32) (i32.load (local.get 0))))";
    let bytes = wat::parse_str(text).expect("a good text");
    let image = compile(&bytes, Options::default()).expect("it compiles");
    let loads: Vec<u32> = image.traps.iter().map(|site| site.wasm).filter(|at| *at != 0).collect();
    assert_eq!(loads.len(), 2);
    for at in loads {
        assert_eq!(bytes.get(at as usize), Some(&0x28), "byte {at:#x} is the load's");
    }
}
