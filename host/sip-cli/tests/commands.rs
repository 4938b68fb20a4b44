//! `gond sip` as a user calls it: two programs from one command, its complaints, its bindings.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Ended, Folder, finish};

const GUEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sip/guest");
/// A command that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(1);

fn put(folder: &Folder, name: &str, content: &[u8]) -> String {
    let path = folder.0.join(name);
    std::fs::write(&path, content).expect("a file");
    path.to_str().expect("a plain path").into()
}

fn gond_in(folder: &Path, input: Stdio, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sip-cli"));
    command.args(words).current_dir(folder).stdin(input);
    let Ended { status, said } = finish(&mut command, LIMIT).expect("it starts");
    let status = status.unwrap_or_else(|| panic!("it hangs: {words:?}: {said:?}"));
    let [out, error] = said;
    (status.code().unwrap_or(-1), out, error)
}

fn gond(words: &[&str]) -> (i32, String, String) {
    gond_in(Path::new("."), Stdio::null(), words)
}

/// A module text with `{client}` and `{server}` for the names of the modules of the contract `Words`.
fn module(folder: &Folder, name: &str, text: &str) -> String {
    let contract = std::fs::read_to_string(format!("{GUEST}/words/words.contract")).expect("the example");
    let contract = sip::contract::Contract::parse(&contract).expect("a good contract");
    let text = text
        .replace("{client}", &contract.import_module(sip::contract::Side::Client))
        .replace("{server}", &contract.import_module(sip::contract::Side::Server));
    put(folder, name, &wat::parse_str(&text).expect("text"))
}

const CLIENT: &str = r#"(module
  (import "{client}" "start" (func $start (result i32)))
  (import "{client}" "text" (func $text (param i32 i32) (result i32)))
  (import "{client}" "receive" (func $receive (param i32) (result i32)))
  (import "{client}" "counted.data" (func $data (param i32) (result i32)))
  (import "gondwana:heap" "alloc" (func $alloc (param i32) (result i32)))
  (import "gondwana:heap" "copy_in" (func $in (param i32 i32 i32 i32)))
  (import "gondwana:heap" "copy_out" (func $out (param i32 i32 i32 i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "hello, peer\0a")
  (data (i32.const 0) "\20\00\00\00\0c\00\00\00")
  (func (export "_start") (local $e i32) (local $b i32)
    (local.set $e (call $start))
    (local.set $b (call $alloc (i32.const 12)))
    (call $in (local.get $b) (i32.const 0) (i32.const 16) (i32.const 12))
    (drop (call $text (local.get $e) (local.get $b)))
    (if (i32.ne (call $receive (local.get $e)) (i32.const 1)) (then return))
    (call $out (call $data (local.get $e)) (i32.const 0) (i32.const 32) (i32.const 12))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;

const SERVER: &str = r#"(module
  (import "{server}" "start" (func $start (result i32)))
  (import "{server}" "counted" (func $counted (param i32 i32 i32) (result i32)))
  (import "{server}" "receive" (func $receive (param i32) (result i32)))
  (import "{server}" "text.data" (func $data (param i32) (result i32)))
  (import "gondwana:heap" "st8" (func $st (param i32 i32 i32)))
  (memory (export "memory") 1)
  (func (export "_start") (local $e i32) (local $b i32)
    (local.set $e (call $start))
    (loop $again
      (if (i32.ne (call $receive (local.get $e)) (i32.const 0)) (then return))
      (local.set $b (call $data (local.get $e)))
      (call $st (local.get $b) (i32.const 0) (i32.const 72))
      (drop (call $counted (local.get $e) (local.get $b) (i32.const 2)))
      (br $again))))"#;

/// Code that is not proved, in a stored image whose checksum fits: each such function is named, not the first alone.
#[test]
fn every_refused_function_is_named() {
    let folder = Folder::new("refused");
    let bytes = wat::parse_str(
        r#"(module (import "env" "f" (func $f)) (memory 1)
          (func (export "first") (result i32) (i32.load (i32.const 1)))
          (func (export "_start") (drop (i32.load (i32.const 70000))))
          (func (drop (i32.load (i32.const 80000))) (call $f)))"#,
    )
    .expect("text");
    let mut image = sip::compile::compile(&bytes, sip::compile::Options::default()).expect("compiles");
    for at in [0, 2] {
        // hlt, in place of the first instruction
        let start = image.functions[at].start as usize;
        image.code[start] = 0xf4;
    }
    let file = put(&folder, "bad.sip", &sip::stored::write(&image, &bytes).expect("small"));
    let load = bytes.windows(2).position(|two| two == [0x28, 2]).expect("a load");
    for command in ["check", "run"] {
        let (status, _, said) = gond(&[command, &file]);
        assert_eq!(status, 1, "{said}");
        let first = format!(
            "{file}: function 1 'first' is not proved: instruction not allowed, 0x0 bytes from its start (near byte {load:#x} of"
        );
        assert!(said.contains(&first), "{first}: {said}");
        assert!(
            said.contains("function 3 is not proved: instruction not allowed"),
            "{said}"
        );
        assert!(!said.contains("function 2"), "{said}");
    }
}

#[test]
fn two_programs_from_one_command() {
    let folder = Folder::new("two");
    let contract = format!("{GUEST}/words/words.contract");
    let (client, server) = (module(&folder, "a.wasm", CLIENT), module(&folder, "b.wasm", SERVER));
    for pair in [[&client, &server], [&server, &client]] {
        let answer = gond(&["run", "--channel", &contract, pair[0], pair[1]]);
        assert_eq!(answer, (0, "Hello, peer\n".into(), String::new()));
    }
    // One that breaks the contract is stopped, and named; the other sees its peer gone.
    let bad = CLIENT.replace(
        "(if (i32.ne (call $receive",
        "(drop (call $text (local.get $e) (local.get $b))) (if (i32.ne (call $receive",
    );
    let bad = module(&folder, "bad.wasm", &bad);
    let (status, out, error) = gond(&["run", "--channel", &contract, &bad, &server]);
    assert_eq!((status, out.as_str()), (134, ""));
    assert!(
        error.contains("bad.wasm: the process was stopped: refused: the client of Words sends text"),
        "{error}"
    );
}

/// The names of the modules of a contract for `{client NAME}` and `{server NAME}` in a text.
fn named(text: &str, contract: &str) -> String {
    let contract = sip::contract::Contract::parse(contract).expect("a good contract");
    let [client, server] = [sip::contract::Side::Client, sip::contract::Side::Server];
    text.replace(
        &format!("{{client {}}}", contract.name),
        &contract.import_module(client),
    )
    .replace(
        &format!("{{server {}}}", contract.name),
        &contract.import_module(server),
    )
}

const PING: &str = "contract Ping message ping(n: i32) message pong(n: i32)
    state A { ! ping -> B } state B { ? pong -> end }";
const TICK: &str = "contract Tick message tick(n: i32) state A { ! tick -> end }";

/// To end with a status.
const EXIT: &str = r#"(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))"#;

/// Two channels between two programs: each is the client of one and the server of the other.
#[test]
fn two_programs_have_several_channels() {
    let folder = Folder::new("several");
    let one = format!(
        r#"(module {EXIT}
        (import "{{client Ping}}" "start" (func $start (result i32)))
        (import "{{client Ping}}" "ping" (func $ping (param i32 i32) (result i32)))
        (import "{{client Ping}}" "receive" (func $receive (param i32) (result i32)))
        (import "{{client Ping}}" "pong.n" (func $n (param i32) (result i32)))
        (import "{{server Tick}}" "start" (func $other (result i32)))
        (import "{{server Tick}}" "receive" (func $wait (param i32) (result i32)))
        (import "{{server Tick}}" "tick.n" (func $m (param i32) (result i32)))
        (func (export "_start") (local $e i32) (local $o i32)
          (local.set $e (call $start)) (local.set $o (call $other))
          (drop (call $ping (local.get $e) (i32.const 20)))
          (drop (call $wait (local.get $o)))
          (drop (call $receive (local.get $e)))
          (call $exit (i32.add (call $n (local.get $e)) (call $m (local.get $o))))))"#
    );
    let other = r#"(module
        (import "{server Ping}" "start" (func $start (result i32)))
        (import "{server Ping}" "receive" (func $receive (param i32) (result i32)))
        (import "{server Ping}" "ping.n" (func $n (param i32) (result i32)))
        (import "{server Ping}" "pong" (func $pong (param i32 i32) (result i32)))
        (import "{client Tick}" "start" (func $other (result i32)))
        (import "{client Tick}" "tick" (func $tick (param i32 i32) (result i32)))
        (func (export "_start") (local $e i32)
          (local.set $e (call $start))
          (drop (call $receive (local.get $e)))
          (drop (call $tick (call $other) (i32.const 5)))
          (drop (call $pong (local.get $e) (i32.add (i32.const 1) (call $n (local.get $e)))))))"#;
    let both = |text: &str| named(&named(text, PING), TICK);
    let one = module(&folder, "one.wasm", &both(&one));
    let other = module(&folder, "other.wasm", &both(other));
    let ping = put(&folder, "ping.contract", PING.as_bytes());
    let tick = put(&folder, "tick.contract", TICK.as_bytes());
    for words in [
        ["run", "--channel", &ping, "--channel", &tick, &one, &other],
        ["run", "--channel", &tick, "--channel", &ping, &other, &one],
    ] {
        assert_eq!(gond(&words), (26, String::new(), String::new()), "{words:?}");
    }
    // Each contract is looked at by itself.
    let (status, _, said) = gond(&["run", "--channel", &ping, &one, &other]);
    assert!(
        status == 1 && said.contains("no channel of the contract Tick was given"),
        "{said}"
    );

    // The same contract twice is two channels, which 'start' hands out one after the other.
    let count = named(
        &format!(
            r#"(module {EXIT} (import "{{client Tick}}" "start" (func $start (result i32)))
            (import "{{client Tick}}" "tick" (func $tick (param i32 i32) (result i32)))
            (func (export "_start") (local $n i32) (local $e i32)
              (loop $again
                (if (local.tee $e (call $start)) (then
                  (drop (call $tick (local.get $e) (i32.const 1)))
                  (local.set $n (i32.add (local.get $n) (i32.const 1)))
                  (br $again))))
              (call $exit (local.get $n))))"#
        ),
        TICK,
    );
    let count = module(&folder, "count.wasm", &count);
    let idle = named(
        r#"(module (import "{server Tick}" "start" (func (result i32))) (func (export "_start")))"#,
        TICK,
    );
    let idle = module(&folder, "idle.wasm", &idle);
    let words = ["run", "--channel", &tick, "--channel", &tick, &idle, &count];
    assert_eq!(gond(&words).0, 2);
}

/// A module that is built for both sides is the client where it stands first.
#[test]
fn the_first_of_two_that_could_be_either_is_the_client() {
    let folder = Folder::new("either");
    let text = format!(
        r#"(module {EXIT} (import "{{client Tick}}" "start" (func $client (result i32)))
        (import "{{server Tick}}" "start" (func $server (result i32)))
        (func (export "_start")
          (call $exit (i32.add
            (i32.mul (i32.const 10) (i32.ne (i32.const 0) (call $client)))
            (i32.mul (i32.const 20) (i32.ne (i32.const 0) (call $server)))))))"#
    );
    let either = module(&folder, "either.wasm", &named(&text, TICK));
    let tick = put(&folder, "tick.contract", TICK.as_bytes());
    // The status of the first that did not end with 0.
    assert_eq!(gond(&["run", "--channel", &tick, &either, &either]).0, 10);
}

#[test]
fn complaints_say_what_to_do() {
    let folder = Folder::new("complaints");
    let contract = format!("{GUEST}/words/words.contract");
    let (client, server) = (module(&folder, "a.wasm", CLIENT), module(&folder, "b.wasm", SERVER));
    let plain = module(&folder, "plain.wasm", r#"(module (func (export "_start")))"#);
    let other = put(
        &folder,
        "other.contract",
        b"contract Words message text(data: block) state A { ! text -> end }",
    );
    let cases: [(&[&str], i32, &str); 12] = [
        (&["run", &client], 1, "no channel of the contract Words was given"),
        (
            &["run", "--channel", &contract, &client],
            2,
            "a channel joins two programs",
        ),
        (&["run", &client, &server], 2, "--channel FILE.contract"),
        (
            &["run", "--channel", &contract, &client, &client],
            1,
            "both the client of Words",
        ),
        (
            &["run", "--channel", &contract, &plain, &server],
            1,
            "plain.wasm: imports nothing of the contract Words",
        ),
        (
            &["run", "--channel", &other, &client, &server],
            1,
            "another version of the contract Words",
        ),
        (&["run", "--channel"], 2, "--channel wants a FILE.contract"),
        (&["run", "missing.wasm"], 1, "missing.wasm: "),
        (&["run"], 2, "run wants a FILE.wasm"),
        (&["run", "--fast", &client], 2, "run knows no option --fast"),
        (&["contract", &client], 1, "a.wasm: "),
        (&["frob"], 2, "there is no command 'frob'"),
    ];
    for (words, status, text) in cases {
        let answer = gond(words);
        assert_eq!((answer.0, answer.1.as_str()), (status, ""), "{words:?}: {}", answer.2);
        assert!(answer.2.contains(text), "{words:?}: {}", answer.2);
    }
    assert_eq!(gond(&["run", &plain, "--", "x.wasm"]).0, 0);
    let (status, out, _) = gond(&["check", &client]);
    assert!(
        status == 0 && out.contains("is the client of the contract Words") && out.contains("proved"),
        "{out}"
    );
}

/// The Rust project that `new` makes is Rust: the compiler of this build checks both programs, as far as
/// it can without the target's library.
#[test]
fn the_new_project_is_good_rust() {
    let folder = Folder::new("new");
    let new = || gond_in(&folder.0, Stdio::null(), &["new", "both"]);
    let (status, _, said) = new();
    assert_eq!(status, 0, "{said}");
    assert_eq!(new().0, 1);
    // A user without 'gond' in the path is told before anything is built.
    let mut run = Command::new("sh");
    run.arg("run")
        .current_dir(folder.0.join("both"))
        .env("GOND", "/nowhere/gond");
    let ended = finish(&mut run, LIMIT).expect("there is a shell");
    assert_eq!(ended.status.and_then(|status| status.code()), Some(1));
    assert!(
        ended.said[1].contains("put the folder of gond into PATH"),
        "{}",
        ended.said[1]
    );
    for program in ["client", "server"] {
        let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(compiler)
            .args([
                "--edition",
                "2024",
                "--crate-type",
                "bin",
                "--emit",
                "metadata",
                "-D",
                "warnings",
                "-o",
            ])
            .arg(folder.0.join("checked"))
            .arg(folder.0.join(format!("both/src/{program}.rs")))
            .output()
            .expect("the compiler starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Builds a program in C, where clang for WebAssembly is installed (Debian: clang lld).
fn build_c(folder: &Folder, source: &str, module: &str) -> Option<String> {
    let module = folder.0.join(module);
    let built = Command::new("clang")
        .args([
            "--target=wasm32",
            "-O2",
            "-nostdlib",
            // Without a library there is nobody but the machine to clear an array.
            "-mbulk-memory",
            "-Wall",
            "-Werror",
            "-Wl,--no-entry",
            "-Wl,--export=_start",
        ])
        .args(["-I", GUEST, "-I"])
        .arg(&folder.0)
        .arg(source)
        .arg("-o")
        .arg(&module)
        .output();
    let Ok(output) = built else {
        eprintln!("clang is not installed: {source} was not built");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("No available targets") || said.contains("unable to execute command") {
        eprintln!("clang or its linker does not know WebAssembly: {source} was not built");
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(module.to_str().expect("a plain path").to_string())
}

/// The example in C, built with the header that `contract --c` makes, and run.
#[test]
fn the_example_in_c_runs() {
    let folder = Folder::new("c");
    let contract = format!("{GUEST}/words/words.contract");
    let header = gond(&["contract", &contract, "--c"]);
    assert_eq!(header.0, 0);
    put(&folder, "words.h", header.1.as_bytes());
    let module = |program: &str| {
        build_c(
            &folder,
            &format!("{GUEST}/words/{program}.c"),
            &format!("{program}.wasm"),
        )
    };
    let (Some(client), Some(server)) = (module("client"), module("server")) else {
        return;
    };
    let (status, out, error) = gond(&["run", "--channel", &contract, &client, &server]);
    assert_eq!((status, error.as_str()), (0, ""));
    assert_eq!(out, "2 ONE BLOCK\n4 GOES TO AND FRO\n4 AND IS NOBODY'S TWICE\n");
}

/// Every call on files and directories, from inside.
#[test]
fn files_are_used_and_stay_inside() {
    let folder = Folder::new("files");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files.c");
    let Some(module) = build_c(&folder, source, "files.wasm") else {
        return;
    };
    let home = folder.0.join("home");
    std::fs::create_dir(&home).expect("a folder");
    let given = format!("{}=/", home.to_str().expect("a plain path"));
    for options in [&["run", "--dir", &given][..], &["run", "--explicit", "--dir", &given]] {
        let answer = gond(&[options, &[module.as_str()]].concat());
        assert_eq!(answer, (0, String::new(), String::new()));
        assert_eq!(std::fs::read_dir(&home).expect("still there").count(), 0);
    }
    let (status, _, error) = gond(&["run", "--dir", "/nowhere/at/all", &module]);
    assert!(status == 1 && error.contains("--dir /nowhere/at/all: "), "{error}");
}

/// Code that never ends by itself is ended by its time: a loop, a loop of calls of the host, one inside a start function,
/// one that waits for the host, and both of two that take turns.
#[test]
fn time_can_be_limited() {
    let folder = Folder::new("time");
    let wasi = r#"(import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
        (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1) (data (i32.const 0) "\10\00\00\00\01\00\00\00")"#;
    for (name, rest) in [
        ("spin.wasm", r#"(func (export "_start") (loop (br 0)))"#),
        (
            "calls.wasm",
            r#"(func (export "_start") (loop (drop (call $yield)) (br 0)))"#,
        ),
        (
            "start.wasm",
            r#"(func $start (loop (br 0))) (start $start) (func (export "_start"))"#,
        ),
        (
            "fill.wasm",
            r#"(func (export "_start") (loop (memory.fill (i32.const 0) (i32.const 1) (i32.const 65536)) (br 0)))"#,
        ),
    ] {
        let file = module(&folder, name, &format!("(module {wasi} {rest})"));
        let (status, _, said) = gond(&["run", "--timeout", "0.2", &file]);
        // By the timer's signal, not by the thread that ends what waits for the host.
        assert!(
            said.contains("its time is over") && !said.contains("waits for the host"),
            "{name}: {said}"
        );
        assert_ne!(status, 0, "{name}");
    }
    let waits = r#"(func (export "_start")
        (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8))))"#;
    let file = module(&folder, "waits.wasm", &format!("(module {wasi} {waits})"));
    // Its input stays open, and nothing comes.
    let words = ["run", "--timeout", "0.2", &file];
    let (status, _, said) = gond_in(Path::new("."), Stdio::piped(), &words);
    assert!(said.contains("its time is over"), "{said}");
    assert_eq!(status, 134);
    // A read is cut short; a sleep is not, and what sleeps is ended with everything else.
    let sleeps = r#"(module (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (func (export "_start")
          (i32.store (i32.const 16) (i32.const 1)) (i64.store (i32.const 24) (i64.const 3600000000000))
          (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))))"#;
    let sleeps = module(&folder, "sleeps.wasm", sleeps);
    let (status, _, said) = gond(&["run", "--timeout", "0.2", &sleeps]);
    assert!(
        said.contains("a process waits for the host, and its time is over"),
        "{said}"
    );
    assert_eq!(status, 134);

    let client = CLIENT.replace(
        "(local.set $e (call $start))",
        "(loop (br 0)) (local.set $e (call $start))",
    );
    let (client, server) = (
        module(&folder, "client.wasm", &client),
        module(&folder, "server.wasm", SERVER),
    );
    let contract = format!("{GUEST}/words/words.contract");
    let run = |server: &str| {
        let (status, _, said) = gond(&["run", "--timeout", "0.2", "--channel", &contract, &client, server]);
        assert!(!said.contains("waits for the host"), "{said}");
        assert_eq!(status, 134, "{said}");
        let stopped = |name: &str| said.contains(&format!("{name}: the process was stopped: its time is over"));
        [stopped("client.wasm"), stopped("spinning.wasm")]
    };
    // The server sees its peer gone.
    assert_eq!(run(&server), [true, false]);
    let spinning = SERVER.replace("(local.set $e (call $start))", "(loop (br 0))");
    assert_eq!(run(&module(&folder, "spinning.wasm", &spinning)), [true, true]);

    let (status, _, said) = gond(&["run", "--timeout", "0", &file]);
    assert!(status == 2 && said.contains("--timeout cannot be '0'"), "{said}");
    let ends = module(&folder, "ends.wasm", r#"(module (func (export "_start")))"#);
    assert_eq!(gond(&["run", "--timeout", "60", &ends]).0, 0);
}

/// A stored image runs without the compiler, and is refused for whatever it is not.
#[test]
fn images_are_stored() {
    let folder = Folder::new("stored");
    let text = r#"(module
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 1)
        (func (export "_start") (call $exit (i32.const 7))))"#;
    let file = module(&folder, "seven.wasm", text);
    let image = format!("{}/other.sip", folder.0.display());
    assert_eq!(
        gond(&["compile", &file, "-o", &image]),
        (0, String::new(), String::new())
    );
    std::fs::remove_file(&file).expect("the module");
    assert_eq!(gond(&["run", &image]).0, 7);
    let (status, said, _) = gond(&["check", &image]);
    assert!(status == 0 && said.contains("proved: "), "{said}");

    let good = std::fs::read(&image).expect("the image");
    let refused = |name: &str, bytes: &[u8], why: &str| {
        let file = put(&folder, name, bytes);
        let (status, _, said) = gond(&["run", &file]);
        assert!(
            status == 1 && said.contains(name) && said.contains(why),
            "{name}: {said}"
        );
    };
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 4;
    refused("damaged.sip", &damaged, "it is damaged");
    refused("short.sip", &good[..good.len() - 1], "it is damaged");
    refused("empty.sip", &[], "");
    let (status, _, said) = gond(&["run", "--explicit", &image]);
    assert!(status == 1 && said.contains("compile the module again"), "{said}");
    let (status, _, said) = gond(&["compile", &image, "-o", &image]);
    assert!(status == 1 && said.contains("it is compiled already"), "{said}");

    let file = module(&folder, "seven.wasm", text);
    assert_eq!(gond(&["compile", "--explicit", &file]).0, 0);
    assert_eq!(
        gond(&["run", "--explicit", &format!("{}/seven.sip", folder.0.display())]).0,
        7
    );
    let (status, _, said) = gond(&["compile", &file, "-o", "x.wasm"]);
    assert!(status == 2 && said.contains("does not end in .sip"), "{said}");
    let taken = format!("{}/taken.sip", folder.0.display());
    std::fs::create_dir(&taken).expect("a folder");
    let (status, _, said) = gond(&["compile", &file, "-o", &taken]);
    assert!(status == 1 && said.contains("taken.sip: "), "{said}");
    // A module whose file is named as images are is not replaced by its own.
    let misnamed = module(&folder, "misnamed.sip", text);
    let bytes = std::fs::read(&misnamed).expect("the module");
    let (status, _, said) = gond(&["compile", &misnamed]);
    assert!(status == 1 && said.contains("the image would replace it"), "{said}");
    assert_eq!(std::fs::read(&misnamed).expect("the module"), bytes);
    // Nothing is left of what was not written to its end.
    let mut left: Vec<_> = std::fs::read_dir(&folder.0)
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    left.sort();
    let all = [
        "damaged.sip",
        "empty.sip",
        "misnamed.sip",
        "other.sip",
        "seven.sip",
        "seven.wasm",
        "short.sip",
        "taken.sip",
    ];
    assert_eq!(left, all);
}
