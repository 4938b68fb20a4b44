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
    message g(v: f64)
    message stop()
    message ra(data: block)
    message rb()
    message rc(x: i64)
    state Ready { ! a -> Served | ! b -> Again | ! c -> Served | ! d -> Served | ! e -> Served | ! f -> Served | ! g -> Again | ! stop -> end }
    state Again { ! a -> Served | ! e -> Served }
    state Served { ? ra -> Ready | ? rb -> More | ? rc -> Ready }
    state More { ? ra -> Ready | ? rc -> Ready }";

/// Messages: name, types of the fields, blocks as `b`.
const CLIENT: [(&str, &str); 8] = [
    ("a", "ib"),
    ("b", "l"),
    ("c", "bb"),
    ("d", "d"),
    ("e", "ilil"),
    ("f", "ilili"),
    ("g", "d"),
    ("stop", ""),
];
const SERVER: [(&str, &str); 3] = [("ra", "b"), ("rb", ""), ("rc", "l")];
const FIELDS: [(&str, &[&str]); 11] = [
    ("a", &["x", "data"]),
    ("b", &["y"]),
    ("c", &["data", "more"]),
    ("d", &["v"]),
    ("e", &["p", "q", "r", "s"]),
    ("f", &["p", "q", "r", "s", "t"]),
    ("g", &["v"]),
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

/// The imports of a process from one side of the contract; names begin with `c` or `s`.
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

    /// The acts that a program may do wrong, or do at all.
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
            let mut message = CLIENT[self.random.below(7) as usize];
            self.send(client, 'c', message);
            if ["b", "g"].contains(&message.0) {
                // A second message, perhaps while the first, which cannot go the short way, is in the queue.
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

/// How each process ended and what it has seen; and how many messages went the short way. `started` are the
/// processes as they come to their turns first, `joined` the contract, client and server of each channel.
fn converse(
    contracts: &[&str],
    modules: &[String],
    started: impl Iterator<Item = usize>,
    joined: &[[usize; 3]],
    is_short: bool,
) -> (Vec<(String, Vec<Val>)>, u64) {
    let mut world = World::new(contracts);
    if !is_short {
        world.group.without_short_way();
    }
    let mut processes = vec![0; modules.len()];
    for at in started {
        processes[at] = world.add(&modules[at]);
    }
    for [contract, client, server] in joined {
        let protocol = world.protocols[*contract].clone();
        let joined = world.group.connect(&protocol, processes[*client], processes[*server]);
        joined.expect("room");
    }
    let outcomes = world.group.run();
    let seen = processes.iter().map(|process| {
        let store = world.group.store(*process);
        let Some(Extern::Global(trace)) = store.export(0, "trace") else {
            panic!("the trace is exported");
        };
        (
            words(&outcomes[*process]),
            store.global_value(trace).into_iter().collect(),
        )
    });
    let seen = seen.collect();
    assert!(world.is_empty());
    (seen, world.group.passed())
}

/// The same of a chain, each process of which is the client of the next.
fn run(modules: &[String], is_short: bool) -> (Vec<(String, Vec<Val>)>, u64) {
    let joined: Vec<[usize; 3]> = (1..modules.len()).map(|at| [0, at - 1, at]).collect();
    converse(&[WALK], modules, 0..modules.len(), &joined, is_short)
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

/// In the middle of several messages one way, to a receiver that has had the first and waits for the next: what the
/// contract does not allow there is refused, and what it allows goes the short way. The last of the chain runs first;
/// the first one ends, so that the last gets its turn while the one between them waits.
#[test]
fn a_state_in_the_middle_allows_what_it_allows() {
    for message in CLIENT {
        let mut chain = Chain {
            random: Random(7),
            bodies: vec![String::new(); 3],
            held: vec![false; 3],
            mischief: 0,
        };
        chain.send(0, 'c', ("stop", ""));
        chain.send(1, 'c', ("b", "l"));
        chain.receive(1, 's', ("stop", ""));
        chain.send(1, 'c', message);
        chain.receive(2, 's', ("b", "l"));
        chain.receive(2, 's', message);
        let modules: Vec<String> = (0..3).map(|process| chain.module(process)).collect();
        let both = [false, true].map(|is_short| {
            let joined = [[0, 0, 1], [0, 1, 2]];
            converse(&[WALK], &modules, [2, 1, 0].into_iter(), &joined, is_short)
        });
        assert_eq!(both[0].0, both[1].0, "{}", message.0);
        let allowed = ["a", "e"].contains(&message.0);
        assert_eq!(both[1].0[1].0 == "ended", allowed, "{}", both[1].0[1].0);
        assert_eq!(both[1].1, if allowed { 3 } else { 2 }, "{}", message.0);
    }
}

/// An endpoint of another contract, in which the message of the same number and types is allowed now.
#[test]
fn another_contracts_endpoint_is_refused() {
    let twin = WALK.replace("Walk", "Twin").replace("rc(x: i64)", "rc(x: i32)");
    let trace = r#"(global $trace (export "trace") (mut i64) (i64.const 7))"#;
    let client = format!(
        r#"(module {} (import "{{client Twin}}" "start" (func $twin (result i32))) {trace}
        (func (export "main") (drop (call $c_e (call $twin)
            (i32.const 1) (i64.const 2) (i32.const 3) (i64.const 4)))))"#,
        imports("client")
    );
    let server = format!(
        r#"(module (import "{{server Twin}}" "start" (func $start (result i32)))
        (import "{{server Twin}}" "receive" (func $receive (param i32) (result i32))) {trace}
        (func (export "main") (global.set $trace (i64.extend_i32_s (call $receive (call $start))))))"#
    );
    let modules = [client, server];
    for is_short in [false, true] {
        let (seen, passed) = converse(&[WALK, &twin], &modules, [1, 0].into_iter(), &[[1, 0, 1]], is_short);
        let refused = &seen[0].0;
        assert!(
            refused.contains("the endpoint is not the client's of the contract Walk"),
            "{refused}"
        );
        // The peer sees nothing but an end.
        assert_eq!(seen[1], ("ended".into(), vec![Val::I64(-1)]));
        assert_eq!(passed, 0);
    }
}

/// More blocks come and go the short way than a process has handles.
#[test]
fn handles_come_back_from_the_short_way() {
    // Imports come first.
    let trace = r#"(import "gondwana:heap" "free" (func $free (param i32)))
        (import "gondwana:heap" "alloc" (func $alloc (param i32) (result i32)))
        (global $trace (export "trace") (mut i64) (i64.const 7))"#;
    let client = format!(
        r#"(module {} {trace}
        (func (export "main") (local $e i32) (local $n i32)
          (local.set $e (call $c_start))
          (loop $again
            (drop (call $c_a (local.get $e) (i32.const 1) (call $alloc (i32.const 8))))
            (drop (call $c_receive (local.get $e)))
            (call $free (call $c_ra_data (local.get $e)))
            (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 5000))))
          (global.set $trace (i64.extend_i32_u (local.get $n)))))"#,
        imports("client")
    );
    let server = format!(
        r#"(module {} {trace} (func (export "main") (local $e i32)
          (local.set $e (call $s_start))
          (loop $again
            (if (i32.ne (call $s_receive (local.get $e)) (i32.const 0)) (then (return)))
            (drop (call $s_ra (local.get $e) (call $s_a_data (local.get $e))))
            (br $again))))"#,
        imports("server")
    );
    let modules = [client, server];
    let (general, none) = run(&modules, false);
    let (short, some) = run(&modules, true);
    assert_eq!(general[0], ("ended".into(), vec![Val::I64(5000)]));
    assert_eq!(general, short);
    // All but the first, for which nobody waited yet.
    assert_eq!((none, some), (0, 9_999));
}

/// A receive out of turn, while the peer has a message that went the short way and could be given the processor.
#[test]
fn who_has_to_speak_does_not_wait() {
    let mut chain = Chain {
        random: Random(7),
        bodies: vec![String::new(); 2],
        held: vec![false; 2],
        mischief: 0,
    };
    chain.send(0, 'c', ("b", "l"));
    chain.receive(0, 'c', ("rb", ""));
    chain.receive(1, 's', ("b", "l"));
    chain.receive(1, 's', ("a", "ib"));
    let modules = [chain.module(0), chain.module(1)];
    let both = [false, true].map(|is_short| converse(&[WALK], &modules, [1, 0].into_iter(), &[[0, 0, 1]], is_short));
    assert_eq!(both[0].0, both[1].0);
    assert_eq!((both[0].1, both[1].1), (0, 1));
    assert!(both[1].0[0].0.contains("the client of Walk"), "{}", both[1].0[0].0);
}

/// An endpoint in a message to a process that waits: it becomes that process's, under its number there.
#[test]
fn endpoints_do_not_go_the_short_way() {
    let give = "contract Give message give(e: endpoint) state A { ! give -> end }";
    let close = r#"(import "gondwana:channel" "close" (func $close (param i32)))
        (global $trace (export "trace") (mut i64) (i64.const 7))"#;
    let client = format!(
        r#"(module (import "{{client Give}}" "start" (func $start (result i32)))
        (import "{{client Give}}" "open" (func $open (result i64)))
        (import "{{client Give}}" "give" (func $give (param i32 i32) (result i32))) {close}
        (func (export "main") (local $e i32)
          (local.set $e (i32.wrap_i64 (call $open)))
          (drop (call $give (call $start) (local.get $e)))
          (call $close (local.get $e))))"#
    );
    let server = format!(
        r#"(module (import "{{server Give}}" "start" (func $start (result i32)))
        (import "{{server Give}}" "receive" (func $receive (param i32) (result i32)))
        (import "{{server Give}}" "give.e" (func $e (param i32) (result i32))) {close}
        (func (export "main") (local $e i32)
          (local.set $e (call $start))
          (drop (call $receive (local.get $e)))
          (call $close (call $e (local.get $e)))
          (global.set $trace (i64.const 8))))"#
    );
    let modules = [client, server];
    for is_short in [false, true] {
        let (seen, passed) = converse(&[give], &modules, [1, 0].into_iter(), &[[0, 0, 1]], is_short);
        assert!(seen[0].0.contains("the number names no endpoint"), "{}", seen[0].0);
        assert_eq!(seen[1], ("ended".into(), vec![Val::I64(8)]));
        assert_eq!(passed, 0);
    }
}
