//! Two and more processes over channels, as compiled and verified code.

mod support;
use sip::compile::Bounds;
use sip::exec::Group;
use support::{World, words};

const STORE: &str = "contract Store
    message put(data: block, size: i64)
    message done(data: block, sum: i64)
    message refused()
    message stop()
    state Ready { ! put -> Waiting | ! stop -> end }
    state Waiting { ? done -> Ready | ? refused -> Ready }";

/// Sends a block a hundred times and has it back with one added to its first word.
const CLIENT: &str = r#"(module
  (import "{client Store}" "start" (func $start (result i32)))
  (import "{client Store}" "put" (func $put (param i32 i32 i64) (result i32)))
  (import "{client Store}" "stop" (func $stop (param i32) (result i32)))
  (import "{client Store}" "receive" (func $receive (param i32) (result i32)))
  (import "{client Store}" "done.data" (func $data (param i32) (result i32)))
  (import "{client Store}" "done.sum" (func $sum (param i32) (result i64)))
  (import "gondwana:heap" "alloc" (func $alloc (param i32) (result i32)))
  (import "gondwana:heap" "len" (func $len (param i32) (result i32)))
  (import "gondwana:heap" "ld64" (func $ld (param i32 i32) (result i64)))
  (func $check (param i32) (if (i32.eqz (local.get 0)) (then unreachable)))
  (func (export "main") (local $e i32) (local $b i32) (local $i i64)
    (local.set $e (call $start))
    (call $check (i32.eqz (call $start)))
    (local.set $b (call $alloc (i32.const 100)))
    (loop $again
      (call $check (i32.eqz (call $put (local.get $e) (local.get $b) (local.get $i))))
      (call $check (i32.eqz (call $len (local.get $b))))
      (call $check (i32.eq (call $receive (local.get $e)) (i32.const 1)))
      (local.set $b (call $data (local.get $e)))
      (call $check (i32.eq (call $len (local.get $b)) (i32.const 100)))
      (local.set $i (i64.add (local.get $i) (i64.const 1)))
      (call $check (i64.eq (call $ld (local.get $b) (i32.const 8)) (local.get $i)))
      (call $check (i64.eq (call $sum (local.get $e)) (i64.add (local.get $i) (i64.const 6))))
      (br_if $again (i64.lt_u (local.get $i) (i64.const 100))))
    (call $check (i32.eqz (call $stop (local.get $e))))))"#;

const SERVER: &str = r#"(module
  (import "{server Store}" "start" (func $start (result i32)))
  (import "{server Store}" "done" (func $done (param i32 i32 i64) (result i32)))
  (import "{server Store}" "receive" (func $receive (param i32) (result i32)))
  (import "{server Store}" "put.data" (func $data (param i32) (result i32)))
  (import "{server Store}" "put.size" (func $size (param i32) (result i64)))
  (import "gondwana:heap" "ld64" (func $ld (param i32 i32) (result i64)))
  (import "gondwana:heap" "st64" (func $st (param i32 i32 i64)))
  (func (export "main") (local $e i32) (local $b i32) (local $m i32)
    (local.set $e (call $start))
    (loop $again
      (local.set $m (call $receive (local.get $e)))
      (if (i32.eq (local.get $m) (i32.const 3)) (then return))
      (if (i32.ne (local.get $m) (i32.const 0)) (then unreachable))
      (local.set $b (call $data (local.get $e)))
      (call $st (local.get $b) (i32.const 8) (i64.add (call $ld (local.get $b) (i32.const 8)) (i64.const 1)))
      (br_if $again (i32.eqz (call $done (local.get $e) (local.get $b) (i64.add (call $size (local.get $e)) (i64.const 7))))))))"#;

#[test]
fn messages_move_blocks() {
    for bounds in [Bounds::Guard, Bounds::Explicit] {
        let mut world = World::new(&[STORE]);
        world.bounds = bounds;
        let [client, server] = world.pair(CLIENT, SERVER);
        assert_eq!((words(&client), words(&server)), ("ended".into(), "ended".into()));
        assert!(world.is_empty());
    }
}

/// A server that ends after some of its calls: `$left` counts down before each.
fn dying(how: &str, after: u32) -> String {
    let step = format!(
        "(global.set $left (i32.sub (global.get $left) (i32.const 1)))
         (if (i32.eqz (global.get $left)) (then {how}))"
    );
    SERVER
        .replace(
            "(func (export \"main\")",
            &format!("(global $left (mut i32) (i32.const {after})) (func $step {step}) (func (export \"main\")"),
        )
        .replace(
            "(local.set $m (call $receive",
            "(call $step) (local.set $m (call $receive",
        )
        .replace("(local.set $b (call $data", "(call $step) (local.set $b (call $data")
        .replace("(call $st (local.get $b)", "(call $step) (call $st (local.get $b)")
        .replace("(br_if $again", "(call $step) (br_if $again")
        .replace("(return)", "return")
}

#[test]
fn a_peer_may_die_at_every_step() {
    // A client that is content with a peer that is gone.
    let client = CLIENT
        .replace(
            "(call $check (i32.eqz (call $put (local.get $e) (local.get $b) (local.get $i))))",
            "(if (call $put (local.get $e) (local.get $b) (local.get $i)) (then (if (call $len (local.get $b)) (then unreachable)) return))",
        )
        .replace(
            "(call $check (i32.eq (call $receive (local.get $e)) (i32.const 1)))",
            "(if (i32.eq (call $receive (local.get $e)) (i32.const -1)) (then return))",
        );
    for after in 1..20 {
        let mut world = World::new(&[STORE]);
        let [ours, theirs] = world.pair(&client, &dying("unreachable", after));
        assert_eq!(words(&ours), "ended", "after {after}");
        assert!(words(&theirs).starts_with("unreachable at byte"), "{theirs:?}");
        assert!(world.is_empty(), "after {after}");
        // And the client beside a server that runs on.
        let client = dying("unreachable", after).replace("{server Store}", "{client Store}");
        let mut world = World::new(&[STORE]);
        assert!(world.try_add(&client).expect_err("wrong side").contains("never sends"));
    }
}

#[test]
fn a_client_may_die_too() {
    for after in 0..4 {
        let client = CLIENT.replace(
            "(call $check (i64.eq (call $sum",
            &format!(
                "(if (i64.gt_u (local.get $i) (i64.const {after})) (then unreachable)) (call $check (i64.eq (call $sum"
            ),
        );
        let mut world = World::new(&[STORE]);
        let server = SERVER.replace(
            "(if (i32.ne (local.get $m) (i32.const 0)) (then unreachable))",
            "(if (i32.eq (local.get $m) (i32.const -1)) (then return))",
        );
        let [ours, theirs] = world.pair(&client, &server);
        assert!(words(&ours).starts_with("unreachable at byte"));
        assert_eq!(words(&theirs), "ended");
        assert!(world.is_empty());
    }
}

/// A client with this body, which has `$e`, `$b` and all of `Store`.
fn client(body: &str) -> String {
    let (imports, _) = CLIENT.split_once("(func $check").expect("the marker");
    format!(
        r#"{imports}
        (import "{{client Store}}" "open" (func $open (result i64)))
        (import "gondwana:channel" "close" (func $close (param i32)))
        (import "gondwana:heap" "free" (func $free (param i32)))
        (func (export "main") (local $e i32) (local $b i32) (local $i i64)
          (local.set $e (call $start)) (local.set $b (call $alloc (i32.const 8))) {body}))"#
    )
}

#[test]
fn what_is_out_of_contract_is_contained() {
    let put = "(drop (call $put (local.get $e) (local.get $b) (i64.const 1)))";
    let cases = [
        (
            format!("{put} (local.set $b (call $alloc (i32.const 8))) {put}"),
            "refused: the client of Store sends put, but in state Waiting it has to receive done or refused",
        ),
        (
            "(drop (call $receive (local.get $e)))".into(),
            "refused: the client of Store receives, but in state Ready it may send put or stop",
        ),
        (
            "(drop (call $stop (local.get $e))) (drop (call $stop (local.get $e)))".into(),
            "refused: the client of Store sends stop, but the conversation is over",
        ),
        (
            "(drop (call $stop (i32.const 77)))".into(),
            "refused: the number names no endpoint (never given, closed, or sent)",
        ),
        (
            "(call $close (local.get $e)) (drop (call $stop (local.get $e)))".into(),
            "refused: the number names no endpoint (never given, closed, or sent)",
        ),
        (
            "(local.set $e (i32.wrap_i64 (i64.shr_u (call $open) (i64.const 32)))) (drop (call $stop (local.get $e)))"
                .into(),
            "refused: the endpoint is not the client's of the contract Store",
        ),
        (
            "(drop (call $put (local.get $e) (i32.const 99) (i64.const 1)))".into(),
            "refused: the handle names no block (never given, freed, or sent)",
        ),
        (
            format!("(call $free (local.get $b)) {put}"),
            "refused: the handle names no block (never given, freed, or sent)",
        ),
        (
            format!("{put} (call $free (local.get $b))"),
            "refused: the handle names no block (never given, freed, or sent)",
        ),
        (
            "(drop (call $sum (local.get $e)))".into(),
            "refused: a field of done is asked for, which is not the message that arrived last",
        ),
        (
            format!("{put} (drop (call $ld (local.get $b) (i32.const 0)))"),
            "out of bounds or stale block access",
        ),
    ];
    let server = SERVER.replace(
        "(if (i32.ne (local.get $m) (i32.const 0)) (then unreachable))",
        "(if (i32.eq (local.get $m) (i32.const -1)) (then return))",
    );
    // Blocks have eight bytes here.
    let server = server.replace("(i32.const 8)", "(i32.const 0)");
    for (body, reason) in cases {
        let mut world = World::new(&[STORE]);
        let [ours, theirs] = world.pair(&client(&body), &server);
        let said = words(&ours);
        assert!(said.starts_with(reason), "{body}: {said}");
        assert!(said.contains(" at byte 0x"), "{body}: {said}");
        assert_eq!(words(&theirs), "ended", "{body}");
        assert!(world.is_empty(), "{body}");
    }
}

#[test]
fn imports_must_match_the_contract() {
    let module = |import: &str| format!("(module (import {import}))");
    let refused = |import: &str| {
        World::new(&[STORE])
            .try_add(&module(import))
            .expect_err("cannot be met")
    };
    assert_eq!(
        refused(r#""{server Store}" "put" (func (param i32 i32 i64) (result i32))"#),
        "'put' is a message that the server never sends"
    );
    assert!(refused(r#""{client Store}" "put" (func (param i32 i32 i32) (result i32))"#).contains("the contract says"));
    assert!(refused(r#""{client Store}" "steal" (func)"#).contains("no message, field or operation 'steal'"));
    assert!(refused(r#""gondwana:client:Store:0123456789abcdef" "put" (func)"#).contains("another version"));
    assert!(refused(r#""gondwana:client:Other:0123456789abcdef" "put" (func)"#).contains("no channel of the contract"));
    assert!(refused(r#""gondwana:heap" "steal" (func)"#).contains("no such function 'steal'"));
    assert!(refused(r#""gondwana:heap" "alloc" (func (param i64) (result i32))"#).contains("it is [I32] -> [I32]"));
}

#[test]
fn who_waits_in_vain_is_told() {
    let mut world = World::new(&[STORE]);
    // The server waits for itself: it holds both ends of a channel of its own.
    let server = SERVER.replace(
        "(local.set $e (call $start))",
        "(local.set $e (i32.wrap_i64 (i64.shr_u (call $open) (i64.const 32))))",
    );
    let server = server.replace(
        r#"(import "gondwana:heap" "ld64""#,
        r#"(import "{server Store}" "open" (func $open (result i64))) (import "gondwana:heap" "ld64""#,
    );
    let [client, server] = world.pair(CLIENT, &server);
    for outcome in [client, server] {
        assert_eq!(
            words(&outcome),
            "refused: it waits for a message that nobody can send any more"
        );
    }
    assert!(world.is_empty());
}

const NAMES: &str = "contract Names
    message connect(a: f32, b: i64, c: i64, d: f64, e: i32, f: i64, g: i32)
    message here(service: endpoint, b: f64, c: f32)
    state Start { ! connect -> Waiting }
    state Waiting { ? here -> end }";

/// Asks for a connection with fields of all types, more than there are registers, then uses it.
const ASKER: &str = r#"(module
  (import "{client Names}" "start" (func $names (result i32)))
  (import "{client Names}" "connect" (func $connect (param i32 f32 i64 i64 f64 i32 i64 i32) (result i32)))
  (import "{client Names}" "receive" (func $answer (param i32) (result i32)))
  (import "{client Names}" "here.service" (func $service (param i32) (result i32)))
  (import "{client Names}" "here.b" (func $b (param i32) (result f64)))
  (import "{client Names}" "here.c" (func $c (param i32) (result f32)))
  (import "{client Store}" "put" (func $put (param i32 i32 i64) (result i32)))
  (import "{client Store}" "stop" (func $stop (param i32) (result i32)))
  (import "{client Store}" "receive" (func $receive (param i32) (result i32)))
  (import "{client Store}" "done.sum" (func $sum (param i32) (result i64)))
  (import "gondwana:heap" "alloc" (func $alloc (param i32) (result i32)))
  (func $check (param i32) (if (i32.eqz (local.get 0)) (then unreachable)))
  (func (export "main") (local $n i32) (local $e i32)
    (local.set $n (call $names))
    (call $check (i32.eqz (call $connect (local.get $n) (f32.const 1.5) (i64.const -2) (i64.const 3) (f64.const 4.25)
      (i32.const -5) (i64.const 6) (i32.const 7))))
    (call $check (i32.eq (call $answer (local.get $n)) (i32.const 1)))
    (call $check (f64.eq (call $b (local.get $n)) (f64.const 0.125)))
    (call $check (f32.eq (call $c (local.get $n)) (f32.const 14.75)))
    (local.set $e (call $service (local.get $n)))
    (call $check (i32.eqz (call $put (local.get $e) (call $alloc (i32.const 16)) (i64.const 5))))
    (call $check (i32.eq (call $receive (local.get $e)) (i32.const 1)))
    (call $check (i64.eq (call $sum (local.get $e)) (i64.const 12)))
    (call $check (i32.eqz (call $stop (local.get $e))))))"#;

const NAMER: &str = r#"(module
  (import "{server Names}" "start" (func $names (result i32)))
  (import "{server Names}" "receive" (func $asked (param i32) (result i32)))
  (import "{server Names}" "connect.a" (func $a (param i32) (result f32)))
  (import "{server Names}" "connect.b" (func $b (param i32) (result i64)))
  (import "{server Names}" "connect.d" (func $d (param i32) (result f64)))
  (import "{server Names}" "connect.e" (func $e (param i32) (result i32)))
  (import "{server Names}" "connect.f" (func $f (param i32) (result i64)))
  (import "{server Names}" "connect.g" (func $g (param i32) (result i32)))
  (import "{server Names}" "here" (func $here (param i32 i32 f64 f32) (result i32)))
  (import "{server Store}" "open" (func $open (result i64)))
  (import "{server Store}" "done" (func $done (param i32 i32 i64) (result i32)))
  (import "{server Store}" "receive" (func $receive (param i32) (result i32)))
  (import "{server Store}" "put.data" (func $data (param i32) (result i32)))
  (import "{server Store}" "put.size" (func $size (param i32) (result i64)))
  (func (export "main") (local $n i32) (local $both i64) (local $s i32) (local $sum f32)
    (local.set $n (call $names))
    (if (i32.ne (call $asked (local.get $n)) (i32.const 0)) (then unreachable))
    (local.set $sum (f32.add (call $a (local.get $n)) (f32.add (f32.convert_i64_s (call $b (local.get $n)))
      (f32.add (f32.demote_f64 (call $d (local.get $n))) (f32.convert_i32_s (call $e (local.get $n)))))))
    (local.set $sum (f32.add (local.get $sum) (f32.convert_i64_s (call $f (local.get $n)))))
    (local.set $sum (f32.add (local.get $sum) (f32.convert_i32_s (call $g (local.get $n)))))
    (local.set $sum (f32.add (local.get $sum) (f32.const 3)))
    (local.set $both (call $open))
    (drop (call $here (local.get $n) (i32.wrap_i64 (local.get $both)) (f64.const 0.125) (local.get $sum)))
    (local.set $s (i32.wrap_i64 (i64.shr_u (local.get $both) (i64.const 32))))
    (loop $again
      (if (i32.ne (call $receive (local.get $s)) (i32.const 0)) (then return))
      (drop (call $done (local.get $s) (call $data (local.get $s)) (i64.add (call $size (local.get $s)) (i64.const 7))))
      (br $again))))"#;

#[test]
fn endpoints_travel() {
    let mut world = World::new(&[NAMES, STORE]);
    let [asker, namer] = world.pair(ASKER, NAMER);
    assert_eq!((words(&asker), words(&namer)), ("ended".into(), "ended".into()));
    assert!(world.is_empty());
}

#[test]
fn an_endpoint_travels_only_when_it_may_speak() {
    // The server's end of a fresh channel owes a receive.
    let namer = NAMER.replace(
        "(i32.wrap_i64 (local.get $both)) (f64.const 0.125)",
        "(i32.wrap_i64 (i64.shr_u (local.get $both) (i64.const 32))) (f64.const 0.125)",
    );
    let mut world = World::new(&[NAMES, STORE]);
    let [asker, namer] = world.pair(ASKER, &namer);
    assert!(words(&namer).starts_with("refused: an endpoint can be sent only while it is its side's turn to speak"));
    assert!(words(&asker).starts_with("unreachable"));
    assert!(world.is_empty());
}

#[test]
fn what_nobody_receives_ends() {
    // The asker is gone before its answer comes: the end that travelled closes, and its service sees it.
    let asker = ASKER.replace(
        "(call $check (i32.eq (call $answer (local.get $n)) (i32.const 1)))",
        "return",
    );
    let mut world = World::new(&[NAMES, STORE]);
    let [asker, namer] = world.pair(&asker, NAMER);
    assert_eq!((words(&asker), words(&namer)), ("ended".into(), "ended".into()));
    assert!(world.is_empty());
}

#[test]
fn many_pairs_take_turns() {
    let mut world = World::new(&[STORE]);
    let protocol = world.protocols[0].clone();
    for _ in 0..8 {
        let (client, server) = (world.add(CLIENT), world.add(SERVER));
        world.group.connect(&protocol, client, server).expect("room");
    }
    assert!(world.group.run().iter().all(Result::is_ok));
    assert!(world.is_empty());
}

#[test]
fn a_group_that_never_runs_leaves_nothing() {
    let mut world = World::new(&[STORE]);
    let protocol = world.protocols[0].clone();
    let (client, server) = (world.add(CLIENT), world.add(SERVER));
    world.group.connect(&protocol, client, server).expect("room");
    world.group = Group::new(&world.heap);
    assert!(world.is_empty());
}
