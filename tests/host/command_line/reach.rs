//! `gond send`, `gond receive` and `gond grow`: states that travel between images, and images that grow.

use super::{Folder, gond, noise, ok, refused};
use std::fs::File;
use std::process::{Command, Output, Stdio};

/// Sends to a file.
fn send(words: &[&str], to: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_gond"))
        .arg("send")
        .args(words)
        .stdout(File::create(to).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Receives from a file.
fn receive(words: &[&str], from: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gond"))
        .arg("receive")
        .args(words)
        .stdin(File::open(from).unwrap())
        .output()
        .unwrap()
}

fn taken(words: &[&str], from: &str) -> String {
    let output = receive(words, from);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

fn not_taken(words: &[&str], from: &str) -> String {
    let output = receive(words, from);
    assert!(!output.status.success() && output.stdout.is_empty(), "{words:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_state_travels_with_names_and_contents() {
    let folder = Folder::new("reach");
    let image = folder.image("a.img");
    let [copy, whole, difference, file, back] =
        ["b.img", "whole", "difference", "in", "out"].map(|name| folder.file(name));
    std::fs::write(&file, noise(100_000)).unwrap();
    ok(&["import", &image, &file, "first"]);
    ok(&["snapshot", &image, "keep", "one"]);
    ok(&["import", &image, &file, "second"]);
    ok(&["snapshot", &image, "keep", "two"]);
    send(&[&image, "one"], &whole);
    send(&[&image, "--from", "one", "two"], &difference);
    assert!(std::fs::metadata(&difference).unwrap().len() < 130_000);
    let told = not_taken(&[&copy], &difference);
    assert!(told.contains("send the whole of that first"), "{told}");
    assert!(taken(&[&copy], &whole).ends_with("is at 'one' now\n"));
    assert_eq!(ok(&["ls", &copy]), ok(&["ls", &image, "--snapshot", "one"]));
    assert!(taken(&[&copy], &difference).ends_with("is at 'two' now\n"));
    assert_eq!(ok(&["ls", &copy]), ok(&["ls", &image]));
    ok(&["export", &copy, "second", &back]);
    assert!(std::fs::read(&back).unwrap() == noise(100_000));
    ok(&["check", &copy]);
    let identities = |image: &str| {
        let listed = ok(&["snapshot", image, "ls", "--json"]);
        let rows = listed
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        rows.map(|row| row["identity"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(identities(&copy), identities(&image));
    // The copy moves on: what to do is said, and helps.
    ok(&["import", &copy, &file, "mine"]);
    ok(&["snapshot", &image, "keep", "three"]);
    send(&[&image, "--from", "two", "three"], &difference);
    let told = not_taken(&[&copy], &difference);
    assert!(told.contains("rollback two --keep NAME"), "{told}");
    ok(&["snapshot", &copy, "rollback", "two", "--keep", "mine", "--yes"]);
    taken(&[&copy, "renamed"], &difference);
    assert!(not_taken(&[&copy], &difference).contains("already, as 'renamed'"));
    assert!(not_taken(&[&image], &whole).contains("of its own"));
    // The state as it is has no name, unless it gets one.
    send(&[&image], &whole);
    let other = folder.file("c.img");
    assert!(taken(&[&other, "--disk-size", "48M"], &whole).contains("no name"));
    assert_eq!(std::fs::metadata(&other).unwrap().len(), 48 << 20);
    assert_eq!(ok(&["ls", &other]), ok(&["ls", &image]));
    // A fresh image is replaced.
    let fresh = folder.image("d.img");
    taken(&[&fresh, "today"], &whole);
    assert_eq!(ok(&["ls", &fresh, "--snapshot", "today"]), ok(&["ls", &image]));
    ok(&["check", &fresh]);
}

#[test]
fn what_is_no_whole_stream_is_refused_in_a_sentence() {
    let folder = Folder::new("reach-refused");
    let image = folder.image("a.img");
    let [copy, whole, bad] = ["b.img", "whole", "bad"].map(|name| folder.file(name));
    ok(&["snapshot", &image, "keep", "one"]);
    send(&[&image, "one"], &whole);
    let bytes = std::fs::read(&whole).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    let mut newer = bytes.clone();
    newer[8] = 9;
    for (stream, told) in [
        (&bytes[..bytes.len() - 1], "ends in the middle; send it again"),
        (&bytes[..100], "ends in the middle"),
        (&flipped[..], "a checksum is wrong"),
        (&newer[..], "a checksum is wrong"),
        (b"PK\x03\x04 nothing of ours", "no stream of 'gond send'"),
        (b"", "no stream of 'gond send'"),
        (&[&bytes[..], b"x"].concat()[..], "behind the end"),
    ] {
        std::fs::write(&bad, stream).unwrap();
        let complaint = not_taken(&[&copy], &bad);
        assert!(complaint.contains(told), "{told}: {complaint}");
        assert!(!std::path::Path::new(&copy).exists());
    }
    for (words, status, told) in [
        (&["send", &image, "none"][..], 1, "ls' lists them"),
        (&["send", &image, "--from", "none", "one"], 1, "ls' lists them"),
        (&["send"], 2, "IMAGE"),
        (&["send", &image, "one", "two"], 2, "unexpected"),
        (&["send", &image, "a b"], 2, "letters"),
        (&["receive"], 2, "IMAGE"),
        (&["receive", &copy, "a b"], 2, "letters"),
        (&["receive", &copy, "--disk-size", "1"], 2, "a disk has"),
        (&["grow", &image], 2, "IMAGE SIZE"),
        (&["grow", &image, "much"], 2, "a disk has"),
        (&["grow", &copy, "64M"], 1, "cannot open"),
    ] {
        let complaint = refused(words, status);
        assert!(complaint.contains(told), "{words:?}: {complaint}");
    }
    // A reader that goes away has no whole stream, and the sender says so.
    let file = folder.file("large");
    std::fs::write(&file, noise(4_000_000)).unwrap();
    ok(&["import", &image, &file, "large"]);
    let mut sender = Command::new(env!("CARGO_BIN_EXE_gond"))
        .args(["send", &image])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(sender.stdout.take());
    let ended = sender.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.code() == Some(1) && complaint.contains("went away"),
        "{complaint}"
    );
}

#[test]
fn an_image_grows_and_does_not_shrink() {
    let folder = Folder::new("grow");
    let image = folder.image("a.img");
    let file = folder.file("in");
    std::fs::write(&file, noise(20_000_000)).unwrap();
    ok(&["import", &image, &file, "first"]);
    ok(&["snapshot", &image, "keep", "one"]);
    let names = ok(&["ls", &image]);
    let told = refused(&["import", &image, &file, "second"], 1);
    assert!(told.contains("no room") && told.contains("gond grow"), "{told}");
    for (size, bytes) in [
        ("33M", 33 << 20),
        ("200M", 200 << 20),
        ("1G", 1_u64 << 30),
        ("70G", 70 << 30),
    ] {
        let told = ok(&["grow", &image, size]);
        assert!(told.contains("now"), "{told}");
        assert_eq!(std::fs::metadata(&image).unwrap().len(), bytes);
        assert!(ok(&["check", &image]).ends_with("is sound\n"));
        assert_eq!(ok(&["ls", &image]), names);
        assert_eq!(ok(&["ls", &image, "--snapshot", "one"]), names);
        assert!(ok(&["grow", &image, size]).contains("already"));
    }
    ok(&["import", &image, &file, "second"]);
    ok(&["check", &image]);
    let told = refused(&["grow", &image, "64M"], 1);
    assert!(
        told.contains("does not become smaller") && told.contains("receive NEW"),
        "{told}"
    );
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 70 << 30);
    ok(&["snapshot", &image, "rollback", "one", "--yes"]);
    assert_eq!(ok(&["ls", &image]), names);
    // By so little that the bitmaps would not fit.
    let small = folder.file("b.img");
    ok(&["format", &small, "--bare", "--disk-size", "128M"]);
    let told = refused(&["grow", &small, &((128 << 20) + 4096).to_string()], 1);
    assert!(told.contains("is the least"), "{told}");
    assert_eq!(std::fs::metadata(&small).unwrap().len(), 128 << 20);
    // A file that was made longer by somebody is the same image, and grows.
    File::options()
        .write(true)
        .open(&small)
        .unwrap()
        .set_len(300 << 20)
        .unwrap();
    ok(&["check", &small]);
    ok(&["grow", &small, "300M"]);
    assert!(ok(&["check", &small]).ends_with("is sound\n"));
    assert!(gond(&["grow", &small, "300M"]).status.success());
}
