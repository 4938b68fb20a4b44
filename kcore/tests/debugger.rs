//! The debugger's reports of a kernel whose state is known.

mod fake;

use abi::{Call, Rights};
use fake::{Fake, kernel};
use kcore::{
    Half, Kernel, Machine, PageEntry,
    bare::going::Going,
    bare::mapping::{Fpage, How},
    debugger::{Command, parse},
    machine::Stacks,
    scheduler::Standing,
    thread::{Operation, Resumed},
    wait::Key,
};

/// Address of a slot that is linked in these tests.
const ADDRESS: u64 = 0x1_0000_0000;

fn answer(kernel: &Kernel<Fake, impl Half>, line: &str) -> String {
    let mut out = String::new();
    kernel
        .report(parse(line).expect("a command"), &mut out)
        .expect("a string takes everything");
    out
}

/// Two spaces that link one leaf with one page in it; a thread that runs in the first, one that waits in the second,
/// and one that is ready.
fn furnished() -> (Kernel<Fake>, u32) {
    let mut kernel = kernel(40);
    let [first, second] = [0, 1].map(|_| kernel.space_create().expect("a space"));
    let leaf = kernel.leaf_create().expect("a leaf");
    let frame = kernel.frame_zeroed().expect("a frame");
    kernel.leaf_set(leaf, 5, Some(PageEntry::new(frame, Rights::RW).withheld()));
    for (space, rights) in [(first, Rights::RWX), (second, Rights::R)] {
        kernel.link(space, ADDRESS >> 21, leaf, rights).expect("a link");
    }
    for (space, priority) in [(second, 5), (first, 3), (first, 3)] {
        let thread = kernel
            .thread_create(
                space,
                ADDRESS + 64,
                0x7f00_0000_1000,
                [1, 2, 3, 4],
                Standing::new(0, priority),
            )
            .expect("a thread");
        kernel.thread_wake(thread, Resumed::Woken);
    }
    kernel.schedule().expect("the thread in the second space");
    let operation = Operation {
        number: Call::SemWait as u64,
        arguments: [0; 6],
    };
    kernel.park(Key::Semaphore(0x42_0000), Some(7_000_000), Some(operation));
    kernel.hardware.now_ns = 2_000_000;
    kernel.schedule().expect("a thread in the first space");
    (kernel, frame.number())
}

#[test]
fn threads_and_their_registers() {
    let (mut kernel, _) = furnished();
    let text = answer(&kernel, "threads");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(
        lines[1].trim_start().starts_with("0.1 ") && lines[1].contains(" 5 "),
        "{text}"
    );
    assert!(
        lines[1].ends_with("waits for the semaphore at 0x420000, in SemWait"),
        "{text}"
    );
    assert!(
        lines[2].contains("0x0000000100000040  running on processor 0"),
        "{text}"
    );
    assert!(lines[3].ends_with("  ready"), "{text}");
    assert_eq!(lines[4], "3 threads");

    let text = answer(&kernel, "registers 0");
    assert!(text.contains("thread 0.1, waits for the semaphore"), "{text}");
    assert!(
        text.contains("rdi 0000000000000001") && text.contains("rip 0000000100000040"),
        "{text}"
    );
    assert!(answer(&kernel, "registers 0.1").starts_with("thread 0.1"));
    assert_eq!(
        answer(&kernel, "registers 0.2"),
        "no such thread now; 'threads' lists them\n"
    );
    assert_eq!(
        answer(&kernel, "registers 900"),
        "no such thread now; 'threads' lists them\n"
    );

    // A portal call is seen as a frame.
    let running = kernel.id_of(kernel.current().unwrap());
    let callee = kernel.space_create().unwrap();
    kernel.portal_add_stack(callee, 0x7f00_0040_0000);
    kernel
        .portal_enter(running, callee, ADDRESS + 128, [0; 4], Stacks::Open)
        .unwrap();
    let text = answer(&kernel, "registers 1");
    assert!(text.contains("inside 1 portal calls, in space 2"), "{text}");
    assert!(text.contains("returns to 0x100000040 in space 0"), "{text}");
}

#[test]
fn spaces_links_pages_and_frames() {
    let (kernel, frame) = furnished();
    let text = answer(&kernel, "spaces");
    assert!(text.ends_with("2 spaces\n") && text.lines().count() == 4, "{text}");
    let text = answer(&kernel, "space 1");
    let link = text.lines().last().unwrap();
    let words: Vec<&str> = link.split_whitespace().collect();
    assert_eq!(
        (words[0], &words[2..]),
        ("0x00000100000000", &["r----", "1", "2"][..]),
        "{text}"
    );
    assert_eq!(answer(&kernel, "space 2"), "no such space now; 'spaces' lists them\n");

    let text = answer(&kernel, "page 0 0x100005fff");
    assert!(
        text.contains(&format!(
            "resident: frame {frame:#x}, rw---, writing withheld; 1 references"
        )),
        "{text}"
    );
    assert!(answer(&kernel, "page 0 0x100006000").ends_with("the page is not resident\n"));
    assert_eq!(
        answer(&kernel, "page 1 0x200000"),
        "nothing is linked at 0x200000 in space 1\n"
    );
    assert!(answer(&kernel, "page 9 0").starts_with("no such space"));
    assert!(answer(&kernel, "page 0 0xffffffffffffffff").starts_with("nothing is linked"));

    let text = answer(&kernel, &format!("mapping {frame}"));
    assert!(text.contains(": 1 references\n"), "{text}");
    assert!(
        text.contains("  0x100005000 in space 0 (rwx--), the page rw---, writing withheld\n"),
        "{text}"
    );
    assert!(
        text.contains("  0x100005000 in space 1 (r----), the page rw---, writing withheld\n"),
        "{text}"
    );
    let root = kernel.spaces().get(kcore::SpaceId(1)).root().number();
    assert!(answer(&kernel, &format!("mapping {root}")).contains("the root of space 1"));
    assert!(answer(&kernel, "mapping 39").contains("free, never used yet"));
    assert!(answer(&kernel, "mapping 0").contains("not handed out"));
    assert!(answer(&kernel, "mapping 4000000000").contains("not handed out"));
}

/// A link is shown at its whole address, wherever in the address space it is.
#[test]
fn links_far_up_are_shown_where_they_are() {
    let (mut kernel, _) = furnished();
    let leaf = kernel.leaf_create().expect("a leaf");
    for address in [0x20_0000, 0x4060_0000, 0x123_4560_0000, 0x7fff_ffe0_0000] {
        let space = kernel.space_create().expect("a space");
        kernel.link(space, address >> 21, leaf, Rights::R).expect("a link");
        let text = answer(&kernel, &format!("space {}", space.0));
        let link = text.lines().last().and_then(|line| line.split_whitespace().next());
        assert_eq!(link, Some(format!("{address:#016x}").as_str()), "{text}");
    }
}

#[test]
fn the_mapping_tree_of_a_frame_is_shown() {
    let mut kernel = fake::bare(600);
    let sigma0 = kernel
        .sigma0_create(1 << 20, &[(0x4_0000, 0x8_0000)], &[], 2)
        .expect("σ₀");
    let [first, second, third] = [0; 3].map(|_| kernel.free_space_create(sigma0, 1000).expect("a space"));
    let page = |base| Fpage::memory(base, 12, Rights::RW).expect("an fpage");
    let slot = |base| Fpage::memory(base, 21, Rights::RWX).expect("an fpage");
    for (from, source, to, target) in [
        (sigma0, 0x4000_7000, first, 0x20_7000),
        (first, 0x20_7000, second, 0x1000),
        (sigma0, 0x4000_7000, second, 0x9000),
    ] {
        let given = kernel.map(
            (from, page(source)),
            (to, page(target)),
            How::Map,
            &mut Going::default(),
        );
        given.expect("map");
    }
    kernel
        .map(
            (first, slot(0x20_0000)),
            (third, slot(0x20_0000)),
            How::Link,
            &mut Going::default(),
        )
        .expect("link");
    let lines: Vec<String> = answer(&kernel, "mapping 0x40007").lines().map(str::to_owned).collect();
    assert!(lines[0].contains("not handed out"), "{lines:#?}");
    let [root, a, b, c] = [sigma0, first, second, third].map(|space| space.0);
    let of_page = "it has 1 of 1 pages of this mapping";
    let expected = [
        format!("  0x40007000 in space {root}, at most rwx--; it has 262144 of 262144 pages of this mapping"),
        format!("    0x9000 in space {b}, at most rw---; {of_page}"),
        format!("    0x207000 in space {a}, at most rw---; {of_page}"),
        format!("    linked with all around it by space {c}, rwx--"),
        format!("      0x1000 in space {b}, at most rw---; {of_page}"),
    ];
    assert_eq!(lines[1..], expected);
    assert_eq!(answer(&kernel, "mapping 0x40008").lines().count(), 2);
    // Ports have numbers, too, which are no frames.
    assert_eq!(answer(&kernel, "mapping 0x60").lines().count(), 2);
}

#[test]
fn frames_are_told_apart() {
    let mut kernel = kernel(10);
    let (one, two) = (kernel.frame_any().unwrap(), kernel.frame_zeroed().unwrap());
    kernel.frame_share(one);
    assert!(answer(&kernel, &format!("mapping {}", one.number())).contains("2 references\n  in no space"));
    kernel.frames_mut().0.release_zeroed(two);
    assert!(answer(&kernel, &format!("mapping {}", two.number())).contains("known to be zero"));
    kernel.frame_release(one);
    kernel.frame_release(one);
    assert!(answer(&kernel, &format!("mapping {}", one.number())).contains(": free\n"));
    assert!(answer(&kernel, "memory").starts_with("frames            9 of 9 free (36 KiB), 1 of them"));
}

#[test]
fn queues_parked_threads_and_timers() {
    let (mut kernel, _) = furnished();
    let text = answer(&kernel, "queues");
    assert_eq!(
        text,
        "processor 0: 1.1 runs\n  ready at priority 3: 2.1\nparked: 0.1 for the semaphore at 0x420000\ntimer: 0.1 in 5000 us\n"
    );
    kernel.hardware.now_ns = 8_000_000;
    assert!(answer(&kernel, "queues").contains("timer: 0.1 is 1000 us late"));
    assert_eq!(answer(&fake::kernel(4), "queues"), "processor 0: nobody runs\n");
    // The lowest priority: its queue is the first one of those that are not behind.
    let space = kernel.space_create().expect("a space");
    fake::spawn(&mut kernel, space, 0);
    assert!(answer(&kernel, "queues").contains("\n  ready at priority 0: 3.1\n"));
}

#[test]
fn what_is_not_a_look_gets_no_answer() {
    let (kernel, _) = furnished();
    for command in ["", "help", "stop", "continue", "panic", "trace"] {
        assert_eq!(answer(&kernel, command), "", "{command}");
    }
    let mut out = String::new();
    kernel.report(Command::Panic, &mut out).unwrap();
    assert_eq!(out, "");
}
