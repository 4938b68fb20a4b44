//! The texts of `gond help` and `--help`.

use crate::arguments::Usage;
use std::ffi::OsString;

const OVERVIEW: &str = "\
Gondwana: one address space, for every program and for ever.

  ./gond run      starts the system on this terminal (or with a script)
  ./gond test     tests everything, on the host and in QEMU
  ./gond bench    measures, side by side with Linux in the same QEMU
  ./gond crash    cuts the power of the store, on simulated disks

  ./gond ls IMAGE                  lists the names on a disk image
  ./gond import IMAGE FILE NAME    makes an object of a file
  ./gond export IMAGE NAME FILE    makes a file of an object
  ./gond check IMAGE               verifies all of a disk image
  ./gond snapshot IMAGE ...        keeps the state by a name, lists, compares,
                                   goes back, drops
  ./gond send IMAGE [SNAPSHOT]     writes a state, or a difference, as a stream
  ./gond receive IMAGE             makes a state of a stream
  ./gond grow IMAGE SIZE           makes a disk image larger
  ./gond mend IMAGE                makes a lost or damaged root Clist, root
                                   directory or shell anew
  ./gond format IMAGE              makes a disk image without starting it
  ./gond build                     builds kernel and programs only
  ./gond tour                      plays the tour of the README
  ./gond debugger [SOCKET]         talks to the debugger of a running kernel
  ./gond sip ...                   software-isolated processes: run, compile,
                                   check, contract, new (docs/sip.md)
  ./gond module ...                modules: build, describe, show, diff,
                                   symbols, run (docs/modules.md)

'./gond help COMMAND' tells more.
";

const RUN: &str = "\
./gond run [options]

Starts the system. The disk image is made and furnished on first use; what is
kept in it is there again next time, at the same addresses. Programs on it that
are older than the sources are replaced; where the disk has no room for one,
the old one stays, and a message says so.

  --disk FILE       the disk image (gondwana.img)
  --disk-size SIZE  size of an image to be made (256M), 16M at least; it takes
                    only the room it needs, and memory for what is stored on
                    it. An image that is there grows to it before the start, as
                    by './gond grow'. 16T is the most
  --memory SIZE     memory of the machine (128M); 32M at least
  --cpus N          processors of the machine (1); 16 at most
  --accel tcg|kvm   what executes it (tcg)
  --clock WHAT      what advances the machine's clock: time, or with
                    'instructions' each instruction by a nanosecond, so that
                    'micro' counts instructions (time)
  --server PLACE    where the server is: 'kernel', or 'user', a program outside
                    of the kernel (kernel)
  --snapshot NAME   start from this snapshot of the image, on a copy of it that
                    is gone at the end: nothing is written to the image
  --script FILE|-   run the lines of FILE (or of standard input) in the shell; a
                    line has up to 4,000 bytes
  --timeout SECONDS with a script: how long the system may say nothing (300;
                    with --gdb a week)
  --debugger [SOCKET|stdio]
                    attach the kernel debugger to a socket (gondwana.debugger),
                    where './gond debugger' finds it; stdio: to this terminal,
                    where Ctrl-A C changes between it and the shell (not with a
                    script)
  --root PACKAGE    build this package of the sources and run it alone on the
                    bare µ-kernel (docs/guide/nucleus.md); the kernel's log goes
                    to standard output, and --timeout bounds the whole
  --gdb [PORT]      wait for GDB (1234) before the first instruction; the
                    command for GDB is printed

On the terminal Ctrl-C ends the running program, 'poweroff' the system, and
Ctrl-A X pulls the plug.

Standard input that is no terminal is a script, as with '--script -', and its
end switches the system off.

With a script, standard output carries what the shell's lines print and nothing
else; empty lines and those that begin with '#' are passed over. The exit status
is 0 only if every line succeeded and the system powered off cleanly. A system
that dies or hangs is an error that shows the last of its console and log.

A kernel that panics is shown with its back-trace and its last events.
docs/guide/debugging.md tells how to go on.
";

const TEST: &str = "\
./gond test [--only STAGE]... [--keep] [--calls N] [--seed N] [--in PATH]
            [--machine NAME]

Runs all tests but 'fuzz' and 'mutants'. The last line tells how many passed and
how many failed; the exit status is 0 if none failed.

  house      formatting, lints, and every test that runs on the host
  suite      the suite of programs inside the system
  server     the suite with the server outside of the kernel, and what happens
             when that crashes
  nucleus    the suite of the bare µ-kernel
  engine     the engine for isolated processes, as a program of the system
  contract   the promises of the command line
  laboratory 100,000 disks that lost their power, simulated ('./gond crash')
  crash      20 kills of a running workload; a recorded run replayed with torn
             and lost writes
  power      the OO1 database before and after the plug is pulled
  tools      the kernel debugger, back-traces, and GDB where it is installed
  tour       the tour in the README is what a user sees
  guides     README, guides and other documents, each command typed in a copy of
             the sources
  fuzz       only if it is named: millions of calls at random, kernel and server
             built with every assertion
  mutants    only if it is named: small changes of kcore, sasos, store and
             names, one at a time, that host tests must notice

  --only STAGE   only this stage; may be given several times
  --calls N      calls that 'fuzz' makes on each of its twelve machines
                 (2500000: two hours or more), and mutants that 'mutants' tries
                 (500: an hour or two)
  --seed N       the seed that 'fuzz' begins with, and by which 'mutants'
                 chooses (the clock)
  --in PATH      the only file or folder of which 'mutants' tries some, such as
                 store/src/table.rs
  --machine NAME the only machine that 'fuzz' uses: inside-N, outside-N or
                 bare-N with 1, 2, 4 or 16 processors
  --keep         keep the disk images of failed stages in target/failed
";

const BENCH: &str = "\
./gond bench [--json] [--compare | --update] [--system NAME]... [--row NAME]...

Measures each row twice: in instructions (QEMU counting them) and in time (plain
translation), here and in Linux on the same machine. Linux comes as Debian's
kernel package, fetched when first asked for.

  --json         one object a line: {\"row\", \"system\", \"instructions\",
                 \"ns\"}
  --compare      against bench/results.json: rows that need over 3 % more
                 instructions fail
  --update       rewrite bench/results.json and the tables in docs/benchmarks.md
  --system NAME  only gondwana, only gondwana-user (its server outside of the
                 kernel), or only linux
  --row NAME     only this row; may be given several times

./gond bench --working-set [--json]

The bytes and cache lines of the kernel that one message and its answer touch,
and one protected call and its return: a round trip in single steps.

./gond bench --host [--json] [--rounds N | --row NAME | --runs N]

Measures what needs no system: isolated processes (rows sip-…; --rounds, --row)
and the linking of modules (rows link-…; --runs), on this machine's processor,
beside the same C source built for it.

./gond bench --store [--json] [--update] [--rounds N] [--system NAME]...
                     [--row NAME]...

Measures the store over a file of this machine beside the databases LMDB, redb
and SQLite, which are built when first asked for: instructions in user space,
bytes written, flushes and requests, counted under valgrind, and time.

  --json         one object a line: {\"row\", \"system\", \"instructions\",
                 \"ns\", \"bytes\", \"flushes\", \"requests\"}; of what writes also
                 \"bytes_median\", \"flushes_median\"
  --update       rewrite the store's table in docs/benchmarks.md
  --rounds N     rounds that are timed (5)
  --system NAME  only store, lmdb, redb or sqlite
  --row NAME     only this row: store-sync-1, store-sync-256,
                 store-checkpoint-256, store-scan, store-probe or
                 store-create-delete
";

const CRASH: &str = "\
./gond crash [--seeds N] [--from SEED] [--only KIND]... [--json]
./gond crash --qemu N [--seed SEED]

The crash laboratory: lives of the store on simulated disks, at random. The
power is cut again and again, after any subset of the writes under way, whole or
torn, also during recovery. Each disk that may be left is mounted: what was
acknowledged must be there, and nothing that was not asked for. The exit status
is 0 if all were as they must be. A run that fails is told with its seed and
with the command that repeats it.

  cuts       nothing else goes wrong
  full       the disk is full
  failing    requests fail
  tight      both
  memory     pages of memory are refused
  rot        blocks rot, are lost, misdirected, misread or unreadable: the store
             must name the error, or give the right data
  ahead      nothing, or requests fail; syncs go ahead of checkpoints
  heap       the same, and pages of memory are refused
  short      all sequences of up to three operations, with a cut behind each
             request; their seeds end with 20875

  --seeds N     seeds of each kind (2000)
  --from SEED   the first seed (0)
  --only KIND   only this kind; may be given several times
  --json        one object with counts and failures

Ctrl-C ends the runs and tells what was found until then (exit status 130).

With --qemu the whole system runs under QEMU and is killed N times in the middle
of its work, on machines in turns: 1, 2 and 4 processors, the server inside and
outside of the kernel, 128 and 32 MiB of memory, a disk with room and one that
is nearly full. After each kill the disk must be sound, the system must start,
and what was synced must be there, by name and content.

  --seed SEED   repeats the lines and moments of a run, whose seed is printed;
                what had been done by that moment differs (by the clock)
";

const SIP: &str = "\
./gond sip run | compile | check | contract | new ...

Software-isolated processes: compiles a WebAssembly module, proves its machine
code and runs it. './gond sip --help' tells more; docs/sip.md has the whole.
";

const MODULE: &str = "\
./gond module build | describe | show | diff | symbols | run | flags ...

Modules: one text for everybody, private data behind a register.
'./gond module --help' tells more; docs/modules.md has the whole.
";

const CHECK: &str = "\
./gond check IMAGE [--json] [--repair [--yes] | --accept-loss]

Verifies every checksum, the object table, the allocation and the journal of a
disk image, and that the names in its directories lead to objects with valid
capabilities. Names the objects that were stable and are lost, or may be lost.
Nothing is written. The exit status is 0 if all is well.

  --repair       say, line by line, what is damaged on the disk, what it belongs
                 to and what a repair would do about it: what is written anew,
                 what is rebuilt and what is lost. Nothing is written, unless
                 'yes' is typed at a terminal; the status is 0 if there is
                 nothing to do. Names, directories and Clists are the matter of
                 './gond mend'.
  --yes          do it, all of it or nothing, and check the image again. Copy
                 the image first: what is said to be lost is lost for ever.
  --accept-loss  write: the system does not start from an image that has lost
                 something that was stable. This gives it up for ever, tells
                 what it was, and the next start goes on without it. Copy the
                 image first.
";

const MEND: &str = "\
./gond mend IMAGE [--name-all]

Where the root Clist or the root directory was overwritten, has damaged pages or
is gone, makes it anew of the entries and capabilities that are left and that
the object table agrees with; so with damaged pages of other directories. Names
of the root directory that lead nowhere go. Where names are lost, objects to
which no name leads are called found-ADDRESS. Programs that are damaged or gone
are put back. Tells what is lost and what is not mended: other damaged objects,
and the store. The exit status is 0 if nothing is left that is not mended.

  --name-all  call objects to which no name leads found-ADDRESS though no name
              was lost, so that they can be used and removed in the system
";

const LIST: &str = "\
./gond ls IMAGE [--json] [--snapshot NAME]

Lists the names on a disk image, with what they stand for, size, address and
rights, and then the objects without a name. Nothing is written. With --json one
object a line, with null if it has no name: {\"name\", \"kind\", \"bytes\",
\"address\", \"rights\"}; addresses are hexadecimal text.

  --snapshot NAME   as it is in this snapshot ('./gond help snapshot')
";

const SNAPSHOT: &str = "\
./gond snapshot IMAGE keep NAME
./gond snapshot IMAGE ls [--json]
./gond snapshot IMAGE diff A [B] [--json]
./gond snapshot IMAGE rollback NAME [--keep NAME] [--yes]
./gond snapshot IMAGE drop NAME

Snapshots are states of a whole image that stay, by a name: all objects, names
and rights. One takes room only for what is changed later. A name has 1 to 31
letters, digits, '-', '_' and '.'; an image has 64 snapshots at most.

  keep      keep the state as it is now
  ls        list them: when each was made, how many objects it has, what it
            holds, and what it holds alone, which comes back if it is dropped
  diff      the objects that are only in A or only in B, and those that differ,
            with the bytes of the pages that do; without B, A and the state.
            The exit status is 0 if they are equal, and 1 if they differ
  rollback  make it the state again, all of it; the snapshots stay. What was
            changed since is lost, unless --keep gives it a name first. Nothing
            is written before 'yes' is typed at a terminal, or without --yes
  drop      the snapshot goes, and what it held alone is free again

'./gond run --snapshot NAME' starts from one and leaves the image as it is;
'./gond ls' and './gond export' take --snapshot, too. The image must not be in
use: while the system runs, the shell's 'snapshot' keeps, lists and drops them.
'./gond check IMAGE' checks its snapshots.
";

const SEND: &str = "\
./gond send IMAGE [--from SNAPSHOT] [SNAPSHOT]

Writes the state of an image in a snapshot to standard output, as a stream that
'./gond receive' takes: all objects with rights, names and contents. Without
SNAPSHOT it is the state as it is now. Nothing on the image changes, and the
same states give the same bytes. The image must not be in use.

  --from SNAPSHOT   only what differs from this snapshot, for an image that has
                    it, too

  ./gond send a.img monday | ./gond receive b.img
  ./gond send a.img --from monday tuesday | ssh there ./gond receive b.img

A stream holds all passwords: carry it as you would carry the image.
docs/spec/stream-format.md tells what stands in it.
";

const RECEIVE: &str = "\
./gond receive IMAGE [NAME] [--disk-size SIZE] < STREAM

Makes the state of an image that of a stream from './gond send', and keeps it as
the snapshot that was sent, as NAME if one is given. All of it or nothing: a
stream that is cut or damaged changes nothing, nor does a power cut.

A whole state makes a new image, or takes the place of one that holds nothing
but what './gond format' put there. A difference is taken by an image that has
the snapshot from which it is one, and whose state is still that snapshot; if it
is not, './gond snapshot IMAGE rollback SNAPSHOT' goes back. A difference takes
as much memory as its pages.

  --disk-size SIZE   the size of a new image (that of the sender's, or of the
                     image that is there)
";

const GROW: &str = "\
./gond grow IMAGE SIZE

Makes a disk image larger, up to 16T: what is on it stays as it is, snapshots
included. A power cut leaves the old size or the new one. It takes room on this
computer only as it fills. An image does not become smaller: './gond send' and
'./gond receive' make a smaller one.

Where './gond run' has the system running on the image, the disk becomes larger
at once, and the system takes what is new when you type 'disk grow' in its
shell. (This tool reaches it through the socket IMAGE.monitor, which only you
may use. There is none where IMAGE is a longer name than 99 bytes; then end the
system first.)
";

const IMPORT: &str = "\
./gond import IMAGE FILE NAME [--program]

Makes an object with the content of FILE and enters it in the root directory of
the image as NAME, which may be a path through directories that are there. The
exact length is kept, so export gives the same bytes back. An object has 128 GiB
at most.

  --program   FILE is a static-PIE ELF program: lay it out as an image that the
              shell can start
";

const EXPORT: &str = "\
./gond export IMAGE NAME FILE [--snapshot SNAPSHOT]

Writes the content of an object to FILE ('-': standard output), byte for byte.
Nothing on the image changes. NAME may be an address behind 0x, as './gond ls'
shows it: so objects can be had if a directory is damaged. A name that begins
with 0x is told from an address by a '/' before it.

  --snapshot SNAPSHOT   the content that it has in this snapshot
";

const FORMAT: &str = "\
./gond format IMAGE [--disk-size SIZE] [--bare]

Makes a disk image as './gond run' would, without starting it. Refuses if the
file exists.

  --disk-size SIZE   its size (256M). 16T is the most, if this computer's file
                     system takes a file as large
  --bare             without programs: a root directory and a root Clist only
";

const BUILD: &str = "\
./gond build

Builds the kernel and the programs and prints where they are. './gond run' does
so too.
";

const TOUR: &str = "\
./gond tour [--update]

Plays the tour of the README on a fresh disk, power cut included, and prints the
transcript.

  --update   put it into README.md in place of the one there
";

const DEBUGGER: &str = "\
./gond debugger [SOCKET [COMMAND...]]

Talks to the kernel debugger of a system that was started with
'./gond run --debugger [SOCKET]' (gondwana.debugger). With commands it asks each
of them and prints the answers; a command of several words is one argument:
'./gond debugger gondwana.debugger threads \"space 1\"'. Without, it connects
this terminal (Ctrl-C leaves, the system goes on), or asks the lines of standard
input. The command 'help' lists the commands.
";

/// The overview.
pub fn overview() -> &'static str {
    OVERVIEW
}

fn text(command: &str) -> Option<&'static str> {
    Some(match command {
        "" | "help" => OVERVIEW,
        "sip" => SIP,
        "module" => MODULE,
        "run" => RUN,
        "test" => TEST,
        "bench" => BENCH,
        "crash" => CRASH,
        "check" => CHECK,
        "mend" => MEND,
        "ls" => LIST,
        "snapshot" => SNAPSHOT,
        "send" => SEND,
        "receive" => RECEIVE,
        "grow" => GROW,
        "import" => IMPORT,
        "export" => EXPORT,
        "format" => FORMAT,
        "build" => BUILD,
        "tour" => TOUR,
        "debugger" => DEBUGGER,
        _ => return None,
    })
}

/// The text to print, if help was asked for.
pub fn asked(command: &str, rest: &[OsString]) -> anyhow::Result<Option<String>> {
    let unknown = |name: &str| Usage(format!("there is no command '{name}'; './gond help' lists them"));
    match command {
        "help" => {
            let topic = match rest {
                [] => String::new(),
                [word] => word.to_string_lossy().into_owned(),
                _ => return Err(Usage("'./gond help' takes one COMMAND".into()).into()),
            };
            Ok(Some(text(&topic).ok_or_else(|| unknown(&topic))?.to_owned()))
        }
        "--help" | "-h" => Ok(Some(OVERVIEW.to_owned())),
        "--version" | "-V" | "version" => Ok(Some(format!("gond {}\n", env!("CARGO_PKG_VERSION")))),
        _ if rest.iter().any(|word| word == "--help" || word == "-h") => {
            Ok(Some(text(command).ok_or_else(|| unknown(command))?.to_owned()))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_texts_fit_a_terminal() {
        let commands = OVERVIEW.lines().filter_map(|line| line.strip_prefix("  ./gond "));
        let commands: Vec<&str> = commands.filter_map(|rest| rest.split(' ').next()).collect();
        assert!(commands.len() > 10);
        for command in commands.into_iter().chain([""]) {
            let text = text(command).unwrap_or_else(|| panic!("no text for {command}"));
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(long.is_empty(), "{command}: {long:#?}");
            assert!(text.lines().all(|line| !line.ends_with(' ')), "{command}");
        }
    }
}
