//! The host tool from outside: images, names, files, refusals. No QEMU, no target parts: `--bare` images do.
//!
//! Tests that need the system itself are in `gond test --only contract`.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "command_line/crash.rs"]
mod crash;
#[path = "command_line/reach.rs"]
mod reach;
#[path = "command_line/repair.rs"]
mod repair;
#[path = "command_line/snapshots.rs"]
mod snapshots;

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gond-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// A fresh image without programs.
    fn image(&self, name: &str) -> String {
        let image = self.file(name);
        ok(&["format", &image, "--bare", "--disk-size", "32M"]);
        image
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn gond(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gond"))
        .args(words)
        .output()
        .expect("gond starts")
}

/// Runs it, expects success, and gives its output.
fn ok(words: &[&str]) -> String {
    let output = gond(words);
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Runs it, expects this exit status, and gives its complaint.
fn refused(words: &[&str], status: i32) -> String {
    let output = gond(words);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{words:?}: {complaint}");
    assert!(
        output.stdout.is_empty(),
        "{words:?} printed {}",
        String::from_utf8_lossy(&output.stdout)
    );
    complaint
}

/// Bytes that look random and are the same each time.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(length)
    .collect()
}

#[test]
fn a_fresh_image_is_sound_and_nearly_empty() {
    let folder = Folder::new("fresh");
    let image = folder.image("a.img");
    assert!(ok(&["check", &image]).ends_with("is sound\n"));
    let list = ok(&["ls", &image]);
    assert!(
        list.contains("root-clist") && list.contains("0x100000000") && list.contains("rwxd-"),
        "{list}"
    );
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 32 << 20);
    assert!(refused(&["format", &image, "--bare"], 1).contains("exists"));
}

#[test]
fn files_come_back_byte_for_byte() {
    let folder = Folder::new("files");
    let image = folder.image("a.img");
    let mut sparse = noise(300_000);
    sparse[4096..200_000].fill(0);
    for (index, content) in [noise(1), noise(4096), noise(4097), noise(3_000_001), sparse]
        .iter()
        .enumerate()
    {
        let (file, back, name) = (folder.file("in"), folder.file("out"), format!("file {index}"));
        std::fs::write(&file, content).unwrap();
        assert_eq!(ok(&["import", &image, &file, &name]), "");
        assert_eq!(ok(&["export", &image, &name, &back]), "");
        assert!(std::fs::read(&back).unwrap() == *content, "content {index} differs");
        let json = ok(&["ls", &image, "--json"]);
        let line = json
            .lines()
            .find(|line| line.contains(&name))
            .expect("the name is listed");
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (row["bytes"].as_u64(), row["kind"].as_str()),
            (Some(content.len() as u64), Some("data"))
        );
        // By its address an object is whole pages; those that were never written are holes in the file.
        assert_eq!(ok(&["export", &image, row["address"].as_str().unwrap(), &back]), "");
        let pages = std::fs::read(&back).unwrap();
        assert!(pages.starts_with(content) && pages.len() == content.len().next_multiple_of(4096));
        let taken = std::fs::metadata(&back).unwrap().blocks() * 512;
        let written = content
            .chunks(4096)
            .filter(|page| page.iter().any(|&byte| byte != 0))
            .count() as u64;
        assert!(taken <= (written + 2) * 4096, "{taken} for {written} pages");
    }
    assert!(refused(&["export", &image, "0x7000", "-"], 1).contains("no object begins at 0x7000"));
    assert!(refused(&["run", "--disk", &folder.file("b.img"), "--script", "/tmp"], 1).contains("it is a folder"));
    assert!(ok(&["check", &image]).contains("is sound"));
    let output = gond(&["export", &image, "file 0", "-"]);
    assert_eq!(output.stdout, noise(1));
}

#[test]
fn imports_are_refused_for_a_reason() {
    let folder = Folder::new("imports");
    let image = folder.image("a.img");
    let (file, empty) = (folder.file("in"), folder.file("empty"));
    std::fs::write(&file, noise(10)).unwrap();
    std::fs::write(&empty, "").unwrap();
    ok(&["import", &image, &file, "taken"]);
    let before = std::fs::read(&image).unwrap();
    for (words, reason) in [
        (["import", &image, &file, "taken"], "already"),
        (["import", &image, &file, "no/way"], "no directory 'no'"),
        (
            ["import", &image, &file, "taken/below"],
            "no directory: its kind is data",
        ),
        (["import", &image, &file, ".."], "not a name"),
        (["import", &image, &file, &"x".repeat(96)], "not a name"),
        (["import", &image, &folder.file("missing"), "new"], "missing"),
        (["import", &image, &empty, "new"], "empty"),
        (["export", &image, "missing", &file], "no 'missing'"),
    ] {
        let complaint = refused(&words, 1);
        assert!(complaint.contains(reason), "{words:?}: {complaint}");
    }
    assert!(refused(&["import", &image, &file, "new", "--program"], 1).contains("cannot be a program"));
    // Nothing of them is read: neither the disk nor the memory has room.
    let large = folder.file("large");
    std::fs::File::create(&large).unwrap().set_len((128 << 30) + 1).unwrap();
    assert!(refused(&["import", &image, &large, "new"], 1).contains("one object has 128 GiB at most"));
    assert!(refused(&["import", &image, &large, "new", "--program"], 1).contains("1 GiB are the most"));
    assert!(
        std::fs::read(&image).unwrap() == before,
        "a refused import changed the image"
    );
}

#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let folder = Folder::new("full");
    let image = folder.image("a.img");
    let (small, large, back) = (folder.file("small"), folder.file("large"), folder.file("back"));
    std::fs::write(&small, noise(50_000)).unwrap();
    std::fs::write(&large, noise(64 << 20)).unwrap();
    ok(&["import", &image, &small, "small"]);
    assert!(refused(&["import", &image, &large, "large"], 1).contains("full"));
    assert!(ok(&["check", &image]).contains("is sound"));
    ok(&["export", &image, "small", &back]);
    let onto_itself = gond(&["export", &image, "small", &image]);
    assert!(!onto_itself.status.success());
    ok(&["check", &image]);
    assert!(std::fs::read(&back).unwrap() == noise(50_000));
    ok(&["import", &image, &small, "after"]);
}

/// A named pipe that nobody writes to, in the place of each file that is read: whoever opens it waits for ever.
#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let folder = Folder::new("irregular");
    let (image, file, pipe) = (folder.image("a.img"), folder.file("in"), folder.file("pipe"));
    std::fs::write(&file, noise(10)).unwrap();
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts");
    assert!(made.success());
    let socket = folder.file("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (odd, what) in [
        (&*pipe, "a named pipe"),
        ("/", "a folder"),
        ("/dev/null", "a device"),
        (&*socket, "a socket"),
    ] {
        for words in [
            &["check", odd][..],
            &["check", odd, "--accept-loss"],
            &["check", odd, "--json"],
            &["ls", odd],
            &["mend", odd],
            &["import", odd, &file, "new"],
            &["import", &image, odd, "new"],
            &["import", &image, odd, "new", "--program"],
            &["export", odd, "root-clist", &folder.file("out")],
            &["run", "--disk", odd],
        ] {
            let mut child = Command::new(env!("CARGO_BIN_EXE_gond"))
                .args(words)
                .stdin(std::process::Stdio::null())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .expect("gond starts");
            let begun = std::time::Instant::now();
            while child.try_wait().expect("it can be waited for").is_none() {
                if begun.elapsed().as_secs() > 20 {
                    child.kill().expect("it ends");
                    panic!("{words:?} waits");
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let output = child.wait_with_output().expect("its end");
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            let told = complaint.contains(&format!("it is {what}, not a regular file; "));
            assert!(output.status.code() == Some(1) && told, "{words:?}: {complaint}");
            assert_eq!(complaint.lines().count(), 1, "{words:?}: {complaint}");
        }
    }
}

/// Every command on an image that is not right: refused, and not written to.
fn refuses_all(folder: &Folder, bytes: &[u8], what: &str) {
    let (image, file) = (folder.file("bad.img"), folder.file("in"));
    std::fs::write(&image, bytes).unwrap();
    std::fs::write(&file, noise(10)).unwrap();
    for words in [
        &["check", &image][..],
        &["ls", &image],
        &["import", &image, &file, "new"],
        &["export", &image, "root-clist", &folder.file("out")],
    ] {
        let complaint = refused(words, 1);
        assert!(complaint.contains("refused"), "{what}, {words:?}: {complaint}");
        assert!(
            std::fs::read(&image).unwrap() == bytes,
            "{what}: {words:?} wrote to the image"
        );
    }
}

#[test]
fn bad_images_are_refused_and_not_written_to() {
    let folder = Folder::new("bad");
    let good = std::fs::read(folder.image("a.img")).unwrap();
    refuses_all(&folder, b"", "empty");
    refuses_all(&folder, b"#!/bin/sh\n", "a script");
    refuses_all(&folder, &vec![0; 1 << 20], "zeroes");
    refuses_all(&folder, &noise(1 << 20), "noise");
    refuses_all(&folder, &good[..good.len() / 2], "half of an image");
    let mut damaged = good.clone();
    damaged[..16384].copy_from_slice(&noise(16384));
    refuses_all(&folder, &damaged, "no superblock");
}

#[test]
fn one_fault_is_one_fault_and_complaints_name_the_image() {
    let folder = Folder::new("one");
    let image = folder.image("a.img");
    let file = folder.file("in");
    std::fs::write(&file, noise(4096)).unwrap();
    ok(&["import", &image, &file, "file"]);
    let mut bytes = std::fs::read(&image).unwrap();
    let content = bytes.chunks_exact(4096).position(|block| block == noise(4096));
    bytes[content.expect("the content is there") * 4096] ^= 1;
    std::fs::write(&image, &bytes).unwrap();
    let checked = String::from_utf8(gond(&["check", &image]).stdout).unwrap();
    assert!(checked.ends_with("has 1 fault\n"), "{checked}");
    // The file system refuses such a length, or the disk is made and is sparse.
    let large = folder.file("large.img");
    let output = gond(&["format", &large, "--bare", "--disk-size", "16T"]);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!complaint.contains(".new"), "{complaint}");
    assert!(
        output.status.success() || complaint.contains("large.img of 16 TiB"),
        "{complaint}"
    );
}

/// Both copies of the newest superblock: the older generation can be looked at, and nobody writes over what is lost.
#[test]
fn a_lost_generation_is_told_by_name_and_never_written_over() {
    let folder = Folder::new("lost");
    let image = folder.image("a.img");
    let file = folder.file("in");
    std::fs::write(&file, noise(5000)).unwrap();
    ok(&["import", &image, &file, "file"]);
    let good = std::fs::read(&image).unwrap();
    let generation = |block: usize| u64::from_le_bytes(good[block * 4096 + 32..][..8].try_into().unwrap());
    let newest = if generation(0) > generation(2) { 0 } else { 2 };
    let mut lost = good.clone();
    lost[newest * 4096 + 100] ^= 1;
    lost[(newest + 1) * 4096 + 100] ^= 1;
    std::fs::write(&image, &lost).unwrap();

    let checked = gond(&["check", &image]);
    let told = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(1), "{told}");
    let wanted = format!("generation {} is unreadable", generation(newest));
    assert!(told.contains(&wanted) && told.contains("--accept-loss"), "{told}");
    let complaint = refused(&["import", &image, &file, "another"], 1);
    assert!(
        complaint.contains(&wanted) && complaint.contains("--accept-loss"),
        "{complaint}"
    );
    assert!(std::fs::read(&image).unwrap() == lost, "it was written to");

    std::fs::write(&image, &good).unwrap();
    assert!(ok(&["check", &image]).ends_with("is sound\n"));
    ok(&["import", &image, &file, "another"]);

    std::fs::write(&image, &lost).unwrap();
    assert_eq!(gond(&["check", &image, "--accept-loss"]).status.code(), Some(1));
    assert!(ok(&["check", &image]).ends_with("is sound\n"));
    ok(&["import", &image, &file, "another"]);
}

#[test]
fn rot_anywhere_is_found_and_never_written_over() {
    let folder = Folder::new("rot");
    let image = folder.image("a.img");
    let file = folder.file("in");
    std::fs::write(&file, noise(100_000)).unwrap();
    ok(&["import", &image, &file, "file"]);
    let good = std::fs::read(&image).unwrap();
    let used: Vec<usize> = (4..good.len() / 4096)
        .filter(|block| good[block * 4096..][..4096].iter().any(|&b| b != 0))
        .collect();
    let mut found = 0;
    for &block in &used {
        let mut rotten = good.clone();
        rotten[block * 4096 + 123] ^= 0x10;
        std::fs::write(&image, &rotten).unwrap();
        // Blocks of older generations are not in use any more, and their rot is nobody's.
        found += usize::from(!gond(&["check", &image]).status.success());
        let back = folder.file("out");
        std::fs::write(&back, "an earlier copy").unwrap();
        let exported = gond(&["export", &image, "file", &back]).status.success();
        let kept = std::fs::read(&back).unwrap();
        assert!(
            kept == if exported {
                noise(100_000)
            } else {
                b"an earlier copy".into()
            },
            "block {block} rotted and was exported, or a good copy is gone"
        );
        assert!(
            std::fs::read(&image).unwrap() == rotten,
            "block {block}: the image was written to"
        );
    }
    assert!(found >= 25, "rot was found in {found} of {} blocks", used.len());
}

#[test]
fn an_image_in_use_is_left_alone() {
    let folder = Folder::new("lock");
    let image = folder.image("a.img");
    let file = folder.file("in");
    std::fs::write(&file, noise(10)).unwrap();
    let held = std::fs::File::open(&image).unwrap();
    held.lock().unwrap();
    let before = std::fs::read(&image).unwrap();
    for words in [
        &["import", &image, &file, "new"][..],
        &["mend", &image],
        &["check", &image, "--accept-loss"],
    ] {
        assert!(refused(words, 1).contains("in use"), "{words:?}");
    }
    assert!(std::fs::read(&image).unwrap() == before, "it was written to");
}

#[test]
fn an_export_keeps_a_secret_and_leaves_no_part_behind() {
    let folder = Folder::new("secret");
    let image = folder.image("a.img");
    let (file, out) = (folder.file("in"), folder.file("out"));
    std::fs::write(&file, noise(5000)).unwrap();
    ok(&["import", &image, &file, "file"]);
    for mode in [0o600, 0o640, 0o755] {
        std::fs::write(&out, "secret").unwrap();
        std::fs::set_permissions(&out, std::fs::Permissions::from_mode(mode)).unwrap();
        ok(&["export", &image, "file", &out]);
        assert_eq!(std::fs::metadata(&out).unwrap().mode() & 0o7777, mode);
        assert!(std::fs::read(&out).unwrap() == noise(5000));
    }

    // It is ended in the middle: most of this file is a hole.
    let large = std::fs::File::create(&file).unwrap();
    large.set_len(1 << 30).unwrap();
    ok(&["import", &image, &file, "large"]);
    let names = || std::fs::read_dir(&folder.0).unwrap().count();
    let before = names();
    let real = std::fs::canonicalize(&folder.0).unwrap();
    let real_image = std::fs::canonicalize(&image).unwrap();
    let mut export = Command::new(env!("CARGO_BIN_EXE_gond"))
        .args(["export", &image, "large", &out])
        .spawn()
        .expect("gond starts");
    let files = format!("/proc/{}/fd", export.id());
    let is_begun = || {
        let mut open = std::fs::read_dir(&files).into_iter().flatten().flatten();
        open.any(|file| std::fs::read_link(file.path()).is_ok_and(|at| at.starts_with(&real) && at != real_image))
    };
    while !is_begun() && export.try_wait().unwrap().is_none() {}
    export.kill().unwrap();
    export.wait().unwrap();
    assert_eq!(names(), before);
    assert!(
        std::fs::read(&out).unwrap() == noise(5000),
        "it was replaced: the test ends it too late"
    );
}

/// A new file of `gond` replaces no file of the user in the same folder, whatever that is called.
#[test]
fn a_new_file_leaves_those_beside_it_alone() {
    let folder = Folder::new("beside");
    // No process has these numbers: Linux has 2^22 at most.
    let beside = [
        "out.4294967295.new",
        "out.5000000.new",
        "a.img.5000000.new",
        ".a.img.5000000.new",
    ];
    for name in beside {
        std::fs::write(folder.file(name), name).unwrap();
    }
    let image = folder.image("a.img");
    let (file, out) = (folder.file("in"), folder.file("out"));
    std::fs::write(&file, noise(5000)).unwrap();
    ok(&["import", &image, &file, "file"]);
    for _ in ["it is made", "it is replaced"] {
        ok(&["export", &image, "file", &out]);
        assert!(std::fs::read(&out).unwrap() == noise(5000));
    }
    for name in beside {
        assert_eq!(std::fs::read_to_string(folder.file(name)).unwrap_or_default(), name);
    }
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), beside.len() + 3);
}

#[test]
fn of_images_that_are_made_at_once_under_one_name_one_is_made() {
    let folder = Folder::new("at-once");
    let image = folder.file("a.img");
    let format = || {
        Command::new(env!("CARGO_BIN_EXE_gond"))
            .args(["format", &image, "--bare", "--disk-size", "32M"])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("gond starts")
    };
    for _ in 0..5 {
        let all: Vec<_> = (0..6).map(|_| format()).collect();
        let ends: Vec<Output> = all.into_iter().map(|one| one.wait_with_output().unwrap()).collect();
        let complaints: Vec<_> = ends.iter().filter(|end| !end.status.success()).collect();
        assert_eq!(complaints.len(), 5, "of six, one makes the image");
        for end in complaints {
            let complaint = String::from_utf8_lossy(&end.stderr);
            assert!(complaint.contains("a.img exists; remove it first"), "{complaint}");
        }
        assert!(ok(&["check", &image]).ends_with("is sound\n"));
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
        std::fs::remove_file(&image).unwrap();
    }
}

/// A link to an image that is gone, or on a disk that is not mounted: to make one in the place of the link is not what was meant.
#[test]
fn a_link_that_leads_nowhere_is_told_and_stays() {
    let folder = Folder::new("link");
    let (link, nowhere) = (folder.file("a.img"), folder.file("nowhere.img"));
    std::os::unix::fs::symlink("nowhere.img", &link).unwrap();
    for words in [
        &["format", &link, "--bare"][..],
        &["run", "--disk", &link],
        &["check", &link],
    ] {
        let complaint = refused(words, 1);
        assert!(
            complaint.contains("is a link to nowhere.img, which is not there"),
            "{complaint}"
        );
        assert!(complaint.contains("name the file itself"), "{complaint}");
    }
    assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("nowhere.img"));
    assert!(!Path::new(&nowhere).exists());
    ok(&["format", &nowhere, "--bare", "--disk-size", "32M"]);
    assert!(ok(&["check", &link]).ends_with("is sound\n"));
}

#[test]
fn wrong_usage_says_what_is_right() {
    for words in [
        &["bogus"][..],
        &["run", "--memory", "much"],
        &["run", "--accel", "magic"],
        &["run", "--cpus", "0"],
        &["run", "extra"],
        &["run", "--gdb=port"],
        &["run", "--gdb", "1234", "extra"],
        &["run", "--debugger", "stdio", "--script", "-"],
        &["run", "--memory", "-5"],
        &["run", "--root"],
        &["format", "x.img", "--disk-size", "0"],
        &["format", "x.img", "--disk-size", "12Q"],
        &["debugger", "--bogus"],
        &["check"],
        &["import", "a", "b"],
        &["test", "--only", "nothing"],
        &["bench", "--system", "plan9"],
        &["crash", "--only", "nothing"],
        &["crash", "x"],
        &["ls", "--bogus", "x"],
    ] {
        let complaint = refused(words, 2);
        assert!(complaint.contains("help"), "{words:?}: {complaint}");
    }
    // The sentence says what would have been right.
    for (words, reason) in [
        (&["run", "--memory", "16M"][..], "32 MiB at least"),
        (&["run", "--cpus", "17"], "from 1 to 16"),
        (&["run", "--cpus", "255"], "from 1 to 16"),
        (&["run", "--cpus", "4294967297"], "from 1 to 16"),
        (&["run", "--timeout", "0"], "1 at least"),
        (&["run", "--clock", "sun"], "time or instructions"),
        (&["run", "--server", "far"], "kernel or user"),
        (&["run", "--accel", "magic"], "tcg or kvm"),
        (&["run", "--disk-size", "1M"], "16 MiB to 16 TiB"),
        (&["run", "--gdb=70000"], "from 1 to 65535"),
        (&["run", "--gdb", "0"], "from 1 to 65535"),
        (&["run", "--debugger="], "'' is not a file name"),
        (&["format", "x.img", "--disk-size", "1M"], "16 MiB to 16 TiB"),
        (&["format", "x.img", "--disk-size", "17T"], "16 MiB to 16 TiB"),
        (&["format", "x.img", "--bare", "--disk-size", "4K"], "512 KiB to 16 TiB"),
        (&["bench", "--row", "nosuch"], "no row 'nosuch'"),
        (
            &["bench", "--system", "linux", "--row", "rpc-touch-nosuch"],
            "of these systems",
        ),
        (&["test", "--calls", "many"], "--calls cannot be 'many': it is a number"),
        (&["test", "--calls", "0", "--only", "fuzz"], "it is 1 at least"),
        (&["test", "--in", "kcore"], "--in is an option of '--only mutants'"),
        (
            &["test", "--in", "nosuch", "--only", "mutants"],
            "--in cannot be 'nosuch'",
        ),
        (&["test", "--seed", "-1"], "--seed cannot be '-1': it is a number"),
        (&["crash", "--seeds", "0"], "--seeds cannot be '0': it is 1 at least"),
        (&["crash", "--from", "here"], "--from cannot be 'here': it is a number"),
        (&["crash", "--only", "flood"], "there are cuts, full, failing"),
        (
            &["crash", "--only", "short", "--from", "20876"],
            "the seeds of 'short' end with 20875",
        ),
        (&["build", "x"], "takes no operands"),
        (&["tour", "x"], "takes no operands"),
        (&["help", "run", "x"], "one COMMAND"),
    ] {
        let complaint = refused(words, 2);
        assert!(
            complaint.contains(reason) && complaint.contains("help") && !complaint.contains("building"),
            "{words:?}: {complaint}"
        );
    }
    let long = format!("/tmp/{}", "x".repeat(120));
    for (words, reason) in [
        (
            &["run", "--debugger", "/nonexistent/a"][..],
            "there is no folder '/nonexistent' for the debugger's socket",
        ),
        (&["run", "--debugger", "/dev/full/a"], "there is no folder '/dev/full'"),
        (&["run", "--debugger", "/proc/a"], "name another socket"),
        (&["run", "--debugger", &long], "name another socket"),
        (&["run", "--debugger", "/dev/null"], "is a file: name another socket"),
        (&["run", "--disk", "/"][..], "not a regular file"),
        (&["run", "--disk", "/nonexistent/a.img"], "its folder is not there"),
        (&["format", "/nonexistent/a.img", "--bare"], "its folder is not there"),
    ] {
        let complaint = refused(words, 1);
        // At once: nothing is built for it.
        assert!(
            complaint.contains(reason) && !complaint.contains("building"),
            "{words:?}: {complaint}"
        );
    }
    assert!(refused(&["run", "--script", "/nonexistent/script"], 1).contains("/nonexistent/script"));
    assert!(refused(&["debugger", "/nonexistent/socket", "threads"], 1).contains("--debugger /nonexistent/socket"));
}

/// The smallest disks: each size that is taken works until the disk has no room, and then says so and works on.
#[test]
fn the_smallest_disks_work() {
    let folder = Folder::new("small");
    let (image, file, back) = (folder.file("a.img"), folder.file("in"), folder.file("out"));
    std::fs::write(&file, noise(20_000)).unwrap();
    for blocks in 0..128_u64 {
        let complaint = refused(
            &["format", &image, "--bare", "--disk-size", &(blocks * 4096).to_string()],
            2,
        );
        assert!(complaint.contains("512 KiB to 16 TiB"), "{blocks}: {complaint}");
        std::fs::write(&image, vec![0; blocks as usize * 4096]).unwrap();
        let complaint = refused(&["check", &image], 1);
        assert!(complaint.contains("not a Gondwana disk"), "{blocks}: {complaint}");
        std::fs::remove_file(&image).unwrap();
    }
    for blocks in [128_u64, 129, 131, 160] {
        ok(&["format", &image, "--bare", "--disk-size", &(blocks * 4096).to_string()]);
        let full = (0..60).find(|number| {
            let output = gond(&["import", &image, &file, &format!("file-{number}")]);
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                output.status.success() || complaint.contains("has no room for this"),
                "{complaint}"
            );
            !output.status.success()
        });
        let full = full.expect("it becomes full");
        assert!(full > 5, "{blocks}: {full} files");
        assert!(ok(&["check", &image]).ends_with("is sound\n"), "{blocks}");
        for number in 0..full {
            ok(&["export", &image, &format!("file-{number}"), &back]);
            assert!(std::fs::read(&back).unwrap() == noise(20_000), "{blocks}, {number}");
        }
        assert_eq!(ok(&["ls", &image]).lines().count(), 2 + full, "{blocks}");
        std::fs::remove_file(&image).unwrap();
    }
}

/// A file that does not fit is refused with its size and with what is free, which is all of what the refused file leaves: a smaller one fits behind it.
#[test]
fn a_file_larger_than_the_room_is_refused_with_both_sizes() {
    let folder = Folder::new("room");
    let (image, file) = (folder.file("a.img"), folder.file("in"));
    ok(&["format", &image, "--bare", "--disk-size", "4M"]);
    for (mebibytes, free) in [(5, "3."), (2, ""), (2, "1."), (2, "1.")] {
        std::fs::write(&file, noise(mebibytes << 20)).unwrap();
        let words = ["import", &image, &file, "first"];
        if free.is_empty() {
            ok(&words);
            continue;
        }
        let complaint = refused(&["import", &image, &file, "second"], 1);
        let sizes = format!("cannot import {file} of {mebibytes} MiB: the disk {image} has no room for this: {free}");
        assert!(complaint.contains(&sizes), "{complaint}");
        let rest = " MiB of 4 MiB are free, of which 1";
        assert!(complaint.contains(rest), "{complaint}");
    }
    std::fs::write(&file, noise(3 << 19)).unwrap();
    ok(&["import", &image, &file, "second"]);
    assert!(ok(&["check", &image]).ends_with("is sound\n"));
}

/// A large disk costs what is on it: a file, a check and an export are done in a moment, and take hardly any room. The last is nearly the largest; some
/// file systems have no file of 16 TiB.
#[test]
fn a_large_disk_is_sparse() {
    let folder = Folder::new("large");
    let (image, file, back) = (folder.file("a.img"), folder.file("in"), folder.file("out"));
    std::fs::write(&file, noise(300_000)).unwrap();
    for gib in [96, 1 << 10, (16 << 10) - 1] {
        ok(&["format", &image, "--bare", "--disk-size", &format!("{gib}G")]);
        ok(&["import", &image, &file, "file"]);
        assert!(ok(&["check", &image]).ends_with("is sound\n"));
        ok(&["export", &image, "file", &back]);
        assert!(std::fs::read(&back).unwrap() == noise(300_000));
        let metadata = std::fs::metadata(&image).unwrap();
        assert!(
            metadata.len() == gib << 30 && metadata.blocks() * 512 < 2 << 20,
            "{metadata:?}"
        );
        std::fs::remove_file(&image).unwrap();
    }
}

#[test]
fn a_reader_who_goes_is_no_fault() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_gond"));
    let output = command
        .arg("help")
        .stdout(writer)
        .stderr(std::process::Stdio::piped())
        .spawn();
    let output = output.expect("gond starts").wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(141));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn output_that_finds_no_room_is_told() {
    let folder = Folder::new("no-room");
    let image = folder.image("a.img");
    for words in [&["ls", &image][..], &["check", &image], &["help"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gond"));
        let child = command.args(words).stdout(full).stderr(std::process::Stdio::piped());
        let output = child.spawn().expect("gond starts").wait_with_output().expect("its end");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {complaint}");
        assert!(
            complaint.contains("cannot write the output: No space left"),
            "{words:?}: {complaint}"
        );
    }
}

#[test]
fn help_is_there_for_every_command() {
    let overview = ok(&["help"]);
    for command in [
        "run", "test", "bench", "crash", "check", "ls", "import", "export", "format", "build", "debugger",
    ] {
        assert!(
            overview.contains(&format!("./gond {command}")),
            "{command} is not in the overview"
        );
        let text = ok(&["help", command]);
        assert!(text.starts_with(&format!("./gond {command}")), "{text}");
        assert_eq!(ok(&[command, "--help"]), text);
    }
    assert!(ok(&["--version"]).starts_with("gond "));
    assert!(Path::new(env!("CARGO_BIN_EXE_gond")).is_file());
}
