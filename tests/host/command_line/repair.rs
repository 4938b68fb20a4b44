//! `gond check --repair`: what is damaged is said before anything is done, and what is whole stays as it is.

use super::{Folder, gond, noise, ok, refused};

fn told(words: &[&str]) -> (Option<i32>, String) {
    let output = gond(words);
    let mut text = String::from_utf8(output.stdout).expect("UTF-8");
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

#[test]
fn a_sound_image_is_not_written_to_by_a_repair() {
    let folder = Folder::new("repair-sound");
    let image = folder.image("a.img");
    let before = std::fs::read(&image).unwrap();
    for words in [
        &["check", &image, "--repair"][..],
        &["check", &image, "--repair", "--yes"],
    ] {
        assert!(ok(words).contains("nothing to repair"), "{words:?}");
    }
    assert!(ok(&["check", &image, "--repair", "--json"]).contains("\"repair\":[]"));
    assert!(std::fs::read(&image).unwrap() == before, "it was written to");
    assert!(refused(&["check", &image, "--yes"], 2).contains("--repair"));
    assert!(refused(&["check", &image, "--repair", "--accept-loss"], 2).contains("one of the two"));
}

#[test]
fn rot_anywhere_is_repaired_as_was_said() {
    let folder = Folder::new("repair");
    let image = folder.image("a.img");
    let (file, back) = (folder.file("in"), folder.file("out"));
    std::fs::write(&file, noise(100_000)).unwrap();
    ok(&["import", &image, &file, "file"]);
    let good = std::fs::read(&image).unwrap();
    let used = (0..good.len() / 4096).filter(|block| good[block * 4096..][..4096].iter().any(|&b| b != 0));
    let (mut repaired, mut kept) = (0, 0);
    for block in used {
        let mut rotten = good.clone();
        rotten[block * 4096 + 123] ^= 0x10;
        std::fs::write(&image, &rotten).unwrap();
        let (status, said) = told(&["check", &image, "--repair"]);
        assert!(
            std::fs::read(&image).unwrap() == rotten,
            "block {block}: it was written to"
        );
        if said.contains("nothing to repair") {
            assert_eq!(status, Some(0), "block {block}: {said}");
            continue;
        }
        assert!(status == Some(1) && said.contains("repair: "), "block {block}: {said}");
        let (_, done) = told(&["check", &image, "--repair", "--yes"]);
        let steps = |text: &str| text.lines().filter(|line| line.starts_with("repair: ")).count();
        assert_eq!(steps(&done), steps(&said), "block {block}: {done}");
        assert!(done.contains("this is done"), "block {block}: {done}");
        let again = told(&["check", &image, "--repair"]).1;
        assert!(again.contains("nothing to repair"), "block {block}: {again}");
        repaired += 1;
        let exported = gond(&["export", &image, "file", &back]).status.success();
        let lost = ["lost:", "is lost", "given up"].iter().any(|word| said.contains(word));
        assert!(exported || lost, "block {block}: {said}");
        if exported {
            kept += 1;
            assert!(std::fs::read(&back).unwrap() == noise(100_000), "block {block}");
        }
    }
    assert!(repaired >= 28 && kept >= 6, "{repaired} of them, {kept} with the file");
}
