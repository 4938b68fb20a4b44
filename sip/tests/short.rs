//! The short way of messages against the general one: random programs that converse along a chain of channels, now
//! and then against the contract, run by both; all that they see and how each ends must be the same.

mod support;
use sip::exec::{Extern, Val};
use std::fmt::Write;
use support::{World, words};

const WALK: &str = "contract Walk
    message a(x: i32, data: block)
    message b(y: i64)
    message c(data: block, more: block)
    message d(v: f64)
    message e(p: i32, q: i64, r: i32, s: i64)
    message f(p: i32, q: i64, r: i32, s: i64, t: i32)
    message stop()
    message ra(data: block)
    message rb()
    message rc(x: i64)
    state Ready { ! a -> Served | ! b -> Again | ! c -> Served | ! d -> Served | ! e -> Served | ! f -> Served | ! stop -> end }
    state Again { ! a -> Served | ! e -> Served }
    state Served { ? ra -> Ready | ? rb -> More | ? rc -> Ready }
    state More { ? ra -> Ready | ? rc -> Ready }";

/// Messages: name, types of the fields, blocks as `b`.
const CLIENT: [(&str, &str); 7] = [
    ("a", "ib"),
    ("b", "l"),
    ("c", "bb"),
    ("d", "d"),
    ("e", "ilil"),
    ("f", "ilili"),
    ("stop", ""),
];
const SERVER: [(&str, &str); 3] = [("ra", "b"), ("rb", ""), ("rc", "l")];
const FIELDS: [(&str, &[&str]); 10] = [
    ("a", &["x", "data"]),
    ("b", &["y"]),
    ("c", &["data", "more"]),
    ("d", &["v"]),
    ("e", &["p", "q", "r", "s"]),
    ("f", &["p", "q", "r", "s", "t"]),
    ("stop", &[]),
    ("ra", &["data"]),
    ("rb", &[]),
    ("rc", &["x"]),
];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

const fn wasm(letter: char) -> &'static str {
    match letter {
        'l' => "i64",
        'd' => "f64",
        _ => "i32",
    }
}

/// What a process imports from one side of the contract; names begin with `c` or `s`.
fn imports(side: &str) -> String {
    let (mark, ours, theirs) = if side == "client" {
        ('c', &CLIENT[..], &SERVER[..])
    } else {
        ('s', &SERVER[..], &CLIENT[..])
    };
    let from = format!("\"{{{side} Walk}}\"");
    let mut text = format!(
        "(import {from} \"start\" (func ${mark}_start (result i32)))
         (import {from} \"receive\" (func ${mark}_receive (param i32) (result i32)))\n"
    );
    for (name, fields) in ours {
        let types: Vec<&str> = fields.chars().map(wasm).collect();
        let types = types.join(" ");
        let _ = writeln!(
            text,
            "(import {from} \"{name}\" (func ${mark}_{name} (param i32 {types}) (result i32)))"
        );
    }
    for (name, types) in theirs {
        let fields = FIELDS.iter().find(|of| of.0 == *name).expect("listed").1;
        for (field, ty) in fields.iter().zip(types.chars()) {
            let ty = wasm(ty);
            let _ = writeln!(
                text,
                "(import {from} \"{name}.{field}\" (func ${mark}_{name}_{field} (param i32) (result {ty})))"
            );
        }
    }
    text
}

/// Statements of each process of a chain, in the order in which it executes them.
struct Chain {
    random: Random,
    bodies: Vec<String>,
    /// Whether the block that a process was sent last is its still.
    held: Vec<bool>,
    /// One in so many actions is a wrong one.
    mischief: u64,
}

impl Chain {
    fn say(&mut self, process: usize, text: &str) {
        self.bodies[process].push_str(text);
        self.bodies[process].push('\n');
    }

    fn value(&mut self, process: usize, ty: char) -> String {
        match ty {
            // A fresh block, or the one that came last, which may be gone where there is mischief.
            'b' if self.random.below(3) > 0 || !(self.held[process] || self.mischief > 0) => {
                format!("(call $fresh (i32.const {}))", self.random.below(200))
            }
            'b' => {
                self.held[process] = false;
                "(global.get $last)".into()
            }
            'l' => format!("(i64.const {})", self.random.below(u64::MAX).cast_signed()),
            'd' => format!("(f64.const {})", self.random.below(1000)),
            _ => format!("(i32.const {})", self.random.below(1 << 32) as u32),
        }
    }

    fn send(&mut self, process: usize, mark: char, (name, fields): (&str, &str)) {
        let values: Vec<String> = fields.chars().map(|ty| self.value(process, ty)).collect();
        let values = values.join(" ");
        self.say(
            process,
            &format!("(call $note (call ${mark}_{name} (global.get ${mark}) {values}))"),
        );
    }

    fn receive(&mut self, process: usize, mark: char, (name, fields): (&str, &str)) {
        self.say(
            process,
            &format!("(call $note (call ${mark}_receive (global.get ${mark})))"),
        );
        let of = FIELDS.iter().find(|of| of.0 == name).expect("listed").1;
        for (field, ty) in of.iter().zip(fields.chars()) {
            let value = format!("(call ${mark}_{name}_{field} (global.get ${mark}))");
            self.held[process] |= ty == 'b';
            self.say(
                process,
                &match ty {
                    'b' => format!("(call $look {value})"),
                    'l' => format!("(call $fold {value})"),
                    'd' => format!("(call $fold (i64.trunc_sat_f64_s {value}))"),
                    _ => format!("(call $note {value})"),
                },
            );
        }
    }

    /// What a program may do wrong, or do at all.
    fn mischief(&mut self, process: usize, mark: char) {
        if self.mischief == 0 || self.random.below(self.mischief) > 0 {
            return;
        }
        let wrong = match self.random.below(9) {
            0 => "unreachable".into(),
            1 => "(return)".into(),
            2 => format!("(call $close (global.get ${mark}))"),
            3 => format!("(call $note (call ${mark}_receive (global.get ${mark})))"),
            4 => format!("(global.set ${mark} (i32.const {}))", self.random.below(3)),
            5 => "(call $free (global.get $last))".into(),
            6 if mark == 'c' => "(call $fold (call $c_rc_x (global.get $c)))".into(),
            6 => "(call $fold (call $s_b_y (global.get $s)))".into(),
            7 => "(drop (call $fresh (i32.const 20)))".into(),
            _ => {
                let all: &[(&str, &str)] = if mark == 'c' { &CLIENT } else { &SERVER };
                let at = self.random.below(all.len() as u64) as usize;
                return self.send(process, mark, all[at]);
            }
        };
        self.say(process, &wrong);
    }

    /// Some rounds between a process and the next, who may ask the one behind it before it answers.
    fn converse(&mut self, client: usize, rounds: u64) {
        let server = client + 1;
        for _ in 0..=self.random.below(rounds) {
            self.mischief(client, 'c');
            let mut message = CLIENT[self.random.below(6) as usize];
            self.send(client, 'c', message);
            if message.0 == "b" {
                // The server takes both only then, or one after the other.
                let early = self.random.below(2) == 0;
                if early {
                    self.receive(server, 's', message);
                }
                let first = message;
                message = CLIENT[[0, 4][self.random.below(2) as usize]];
                self.send(client, 'c', message);
                if !early {
                    self.receive(server, 's', first);
                }
            }
            self.mischief(server, 's');
            self.receive(server, 's', message);
            if server + 1 < self.bodies.len() && self.random.below(2) == 0 {
                self.converse(server, 3);
            }
            let answer = SERVER[self.random.below(3) as usize];
            self.send(server, 's', answer);
            self.receive(client, 'c', answer);
            if answer.0 == "rb" {
                let last = SERVER[[0, 2][self.random.below(2) as usize]];
                self.send(server, 's', last);
                self.receive(client, 'c', last);
            }
        }
    }

    fn module(&self, process: usize) -> String {
        let body = &self.bodies[process];
        let client = if process + 1 < self.bodies.len() {
            "(global.set $c (call $c_start))"
        } else {
            ""
        };
        let server = if process > 0 {
            "(global.set $s (call $s_start))"
        } else {
            ""
        };
        format!(
            r#"(module {} {}
            (import "gondwana:channel" "close" (func $close (param i32)))
            (import "gondwana:heap" "alloc" (func $alloc (param i32) (result i32)))
            (import "gondwana:heap" "free" (func $free (param i32)))
            (import "gondwana:heap" "len" (func $len (param i32) (result i32)))
            (import "gondwana:heap" "ld8" (func $ld (param i32 i32) (result i32)))
            (import "gondwana:heap" "st8" (func $st (param i32 i32 i32)))
            (global $c (mut i32) (i32.const 0)) (global $s (mut i32) (i32.const 0))
            (global $last (mut i32) (i32.const 0)) (global $made (mut i32) (i32.const 0))
            (global $trace (export "trace") (mut i64) (i64.const 7))
            (func $fold (param i64)
              (global.set $trace (i64.add (i64.mul (global.get $trace) (i64.const 6364136223846793005)) (local.get 0))))
            (func $note (param i32) (call $fold (i64.extend_i32_u (local.get 0))))
            (func $fresh (param i32) (result i32) (local i32)
              (local.set 1 (call $alloc (local.get 0)))
              (global.set $made (i32.add (global.get $made) (i32.const 1)))
              (if (call $len (local.get 1)) (then (call $st (local.get 1) (i32.const 0) (global.get $made))))
              (local.get 1))
            (func $look (param i32)
              (call $note (local.get 0)) (call $note (call $len (local.get 0)))
              (if (call $len (local.get 0)) (then (call $note (call $ld (local.get 0) (i32.const 0)))))
              (global.set $last (local.get 0)))
            (func (export "main") {server} {client} {body}))"#,
            imports("client"),
            imports("server"),
        )
    }
}

/// How each process of a chain ended and what it has seen; and how many messages went the short way.
fn run(modules: &[String], is_short: bool) -> (Vec<(String, Vec<Val>)>, u64) {
    let mut world = World::new(&[WALK]);
    if !is_short {
        world.group.without_short_way();
    }
    let protocol = world.protocols[0].clone();
    let processes: Vec<usize> = modules.iter().map(|text| world.add(text)).collect();
    for pair in processes.windows(2) {
        world.group.connect(&protocol, pair[0], pair[1]).expect("room");
    }
    let outcomes = world.group.run();
    let seen = outcomes.iter().zip(&processes).map(|(outcome, process)| {
        let store = world.group.store(*process);
        let Some(Extern::Global(trace)) = store.export(0, "trace") else {
            panic!("the trace is exported");
        };
        (words(outcome), store.global_value(trace).into_iter().collect())
    });
    let seen = seen.collect();
    assert!(world.is_empty());
    (seen, world.group.passed())
}

fn compare(seeds: std::ops::Range<u64>, mischief: u64) -> (u64, u64) {
    let (mut passed, mut failed) = (0, 0);
    for seed in seeds {
        let mut chain = Chain {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            bodies: vec![String::new(); 2 + seed as usize % 3],
            held: vec![false; 4],
            mischief,
        };
        chain.converse(0, 12);
        let modules: Vec<String> = (0..chain.bodies.len()).map(|process| chain.module(process)).collect();
        let (general, none) = run(&modules, false);
        let (short, some) = run(&modules, true);
        assert_eq!(general, short, "seed {seed}: {modules:#?}");
        assert_eq!(none, 0);
        passed += some;
        failed += general.iter().filter(|(words, _)| words != "ended").count() as u64;
    }
    (passed, failed)
}

#[test]
fn both_ways_are_alike() {
    let (passed, failed) = compare(0..50, 0);
    assert!(passed > 300 && failed == 0, "{passed}, {failed}");
}

#[test]
fn both_ways_fail_alike() {
    let (passed, failed) = compare(1000..1080, 25);
    assert!(passed > 200 && failed > 100, "{passed}, {failed}");
}
