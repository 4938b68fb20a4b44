//! `gond snapshot`: states of an image by a name, kept, listed, compared, gone back to and dropped.

use super::{Folder, gond, noise, ok, refused};

fn status_of(words: &[&str]) -> (Option<i32>, String) {
    let output = gond(words);
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

#[test]
fn a_state_stays_by_its_name_and_comes_back() {
    let folder = Folder::new("snapshots");
    let image = folder.image("a.img");
    let (file, back) = (folder.file("in"), folder.file("out"));
    std::fs::write(&file, noise(100_000)).unwrap();
    assert!(ok(&["snapshot", &image, "ls"]).contains("no snapshots"));
    ok(&["import", &image, &file, "first"]);
    let names = ok(&["ls", &image]);
    ok(&["snapshot", &image, "keep", "one"]);
    assert_eq!(status_of(&["snapshot", &image, "diff", "one"]).0, Some(0));
    ok(&["import", &image, &file, "second"]);
    let later = ok(&["ls", &image]);
    let (status, differences) = status_of(&["snapshot", &image, "diff", "one"]);
    assert_eq!(status, Some(1), "{differences}");
    let object = "only in B: 'second'";
    assert!(
        differences.contains(object) && !differences.contains("'first'"),
        "{differences}"
    );
    assert!(
        status_of(&["snapshot", &image, "diff", "one", "--json"])
            .1
            .contains("\"kind\":\"only in B\"")
    );
    assert_eq!(ok(&["ls", &image, "--snapshot", "one"]), names);
    ok(&["export", &image, "first", &back, "--snapshot", "one"]);
    assert!(std::fs::read(&back).unwrap() == noise(100_000));
    refused(&["export", &image, "second", &back, "--snapshot", "one"], 1);
    // Nothing is written without a word.
    let before = std::fs::read(&image).unwrap();
    assert_eq!(status_of(&["snapshot", &image, "rollback", "one"]).0, Some(1));
    assert!(std::fs::read(&image).unwrap() == before, "it was written to");
    ok(&["snapshot", &image, "rollback", "one", "--keep", "two", "--yes"]);
    assert_eq!(ok(&["ls", &image]), names);
    assert_eq!(ok(&["ls", &image, "--snapshot", "two"]), later);
    ok(&["snapshot", &image, "rollback", "two", "--yes"]);
    assert_eq!(ok(&["ls", &image]), later);
    let listed = ok(&["snapshot", &image, "ls", "--json"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(
        listed.contains("\"name\":\"one\"") && listed.contains("\"alone\":"),
        "{listed}"
    );
    assert!(ok(&["check", &image]).contains("snapshot 'two' holds"));
    ok(&["snapshot", &image, "drop", "one"]);
    ok(&["snapshot", &image, "drop", "two"]);
    assert!(ok(&["snapshot", &image, "ls"]).contains("no snapshots"));
    assert_eq!(ok(&["ls", &image]), later);
    ok(&["check", &image]);
}

#[test]
fn what_cannot_be_done_says_what_can() {
    let folder = Folder::new("snapshots-refused");
    let image = folder.image("a.img");
    ok(&["snapshot", &image, "keep", "one"]);
    let before = std::fs::read(&image).unwrap();
    for (words, status, told) in [
        (&["snapshot", &image, "keep", "one"][..], 1, "drop one"),
        (&["snapshot", &image, "drop", "none"], 1, "ls' lists them"),
        (&["snapshot", &image, "diff", "none"], 1, "ls' lists them"),
        (&["snapshot", &image, "rollback", "none", "--yes"], 1, "ls' lists them"),
        (
            &["snapshot", &image, "rollback", "one", "--keep", "one", "--yes"],
            1,
            "another name",
        ),
        (&["ls", &image, "--snapshot", "none"], 1, "ls' lists them"),
        (&["run", "--disk", &image, "--snapshot", "-"], 2, "letters"),
        (&["snapshot", &image, "keep", "a b"], 2, "letters"),
        (&["snapshot", &image, "keep"], 2, "takes NAME"),
        (&["snapshot", &image, "forget", "one"], 2, "keep, ls, diff"),
        (&["snapshot", &image, "drop", "one", "--yes"], 2, "rollback"),
        (&["snapshot", &image], 2, "keep, ls, diff"),
        (&["snapshot"], 2, "IMAGE"),
    ] {
        let complaint = refused(words, status);
        assert!(complaint.contains(told), "{words:?}: {complaint}");
    }
    // What was refused may have recovered the image, and has changed nothing that anybody sees.
    assert_eq!(std::fs::read(&image).unwrap().len(), before.len());
    ok(&["check", &image]);
}

#[test]
fn where_a_snapshot_has_no_room_there_may_be_none_to_drop() {
    let folder = Folder::new("snapshots-full");
    let (image, file) = (folder.file("a.img"), folder.file("in"));
    std::fs::write(&file, noise(100_000)).unwrap();
    ok(&["format", &image, "--bare", "--disk-size", "512K"]);
    ok(&["import", &image, &file, "first"]);
    ok(&["import", &image, &file, "second"]);
    let complaint = refused(&["snapshot", &image, "keep", "one"], 1);
    assert!(
        complaint.contains("('rm')") && complaint.contains(&format!("gond grow {image} SIZE")),
        "{complaint}"
    );
    ok(&["grow", &image, "600K"]);
    ok(&["snapshot", &image, "keep", "one"]);
}
