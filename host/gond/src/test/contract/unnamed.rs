//! Objects that no name leads to, and one that is larger than the system reaches: what removes them, and what does not pretend to.

use super::{Stand, gond, name};
use crate::disk::lock_image;
use crate::volume::Volume;
use crate::{image, tree};
use abi::address::{OBJECT_BYTES_MAX, PAGE};
use abi::layout::Capability;
use anyhow::Result;
use names::{Directory, Kind};

/// All of it.
pub fn run(stand: &mut Stand<'_, '_>) -> Result<()> {
    without_a_name(stand)?;
    service(stand)?;
    too_large(stand)
}

/// Makes an object on the disk whose capability only the root Clist has.
fn put(volume: &mut Volume, pages: u64) -> Result<Capability> {
    let capability = Capability {
        address: volume.free_address(),
        password: volume.password(),
    };
    volume.put(&image::new_record(capability.address, pages, capability.password, 0))?;
    tree::change_root_clist(volume, |clist| clist.insert(capability))?;
    Ok(capability)
}

fn without_a_name(stand: &mut Stand<'_, '_>) -> Result<()> {
    let disk = name(&stand.disk)?;
    stand.play("create notes 4K\nmkdir d\ncreate d/below 4K\n")?;
    let mut volume = Volume::open_for_change(&lock_image(&stand.disk)?)?;
    let (data, directory) = (put(&mut volume, 2)?.address, put(&mut volume, 1)?.address);
    let mut bytes = vec![0; PAGE as usize];
    Directory::format(&mut bytes)?;
    tree::put_whole(&mut volume, directory, &bytes)?;
    let below = tree::find(&mut volume, "d/below")?.capability.address;
    volume.commit()?;
    drop(volume);
    let before = gond(&["check", &disk])?;
    let lines = [
        (format!("rm {below:#x}"), "has the name /d/below; 'rm /d/below'"),
        (format!("rm {:#x}", data + 8), "give that address"),
        (format!("rm {directory:#x}"), "is a directory; 'rm --force 0x"),
    ];
    let refused: Vec<_> = lines.iter().map(|(line, _)| line.as_str()).collect();
    let ran = stand.play(&format!(
        "{}\nrm {data:#x}\nrm --force {directory:#x}\ncat d/below\ninfo {data:#x}\n",
        refused.join("\n")
    ))?;
    let told = lines.iter().all(|(_, says)| ran.output.contains(says));
    // Those three, and the last: what is gone cannot be asked for.
    let removed = told && ran.complaints.contains("(and 3 more)") && ran.output.contains("names no object");
    let after = gond(&["check", &disk])?;
    let counted = before.output.contains("2 without a name") && before.output.contains("gond mend --name-all IMAGE");
    let outcome = if removed && counted && after.status == Some(0) && after.output.contains("0 without a name") {
        Ok(())
    } else {
        Err(format!(
            "{}\n{}\n{}\n{}",
            before.output, ran.output, ran.complaints, after.output
        ))
    };
    stand
        .bench
        .report("an object without a name is removed by its address", outcome);
    let cleared = stand.play("rm d/below\nrm d\nrm notes\n")?;
    stand.bench.report("and all else stays", cleared.expect(0, ""));
    Ok(())
}

/// A service's name gives no right to write, and no advice may say that force helps.
fn service(stand: &mut Stand<'_, '_>) -> Result<()> {
    stand.play("oo1 create parts 200\noo1 pdx parts\n")?;
    let ran = stand.play("write parts.pdx 0 a\nwrite --force parts.pdx 0 a\n")?;
    let says = "gives the right to call it, and none to write";
    let good = ran.status == Some(1) && ran.output.matches(says).count() == 2;
    let outcome = if good { Ok(()) } else { ran.expect(1, says) };
    stand.bench.report("a service is not written to by its name", outcome);
    let cleared = stand.play("oo1 remove parts\n")?;
    stand
        .bench
        .report("and goes with its database", cleared.expect(0, "parts deleted\n"));
    Ok(())
}

fn too_large(stand: &mut Stand<'_, '_>) -> Result<()> {
    let disk = name(&stand.disk)?;
    let mut volume = Volume::open_for_change(&lock_image(&stand.disk)?)?;
    let bytes = OBJECT_BYTES_MAX + PAGE;
    let capability = put(&mut volume, bytes / PAGE)?;
    image::enter(&mut volume, "vast", Kind::Data, capability, bytes)?;
    volume.commit()?;
    drop(volume);
    let ran = stand.play("rm vast\n")?;
    let stays = ran.status == Some(1) && ran.output.contains("it stays; './gond export' brings");
    let checked = gond(&["check", &disk])?;
    let is_fault = checked.status == Some(1) && checked.output.contains("fault: 'vast', object 0x");
    let outcome = if stays && is_fault {
        Ok(())
    } else {
        Err(format!("{}\n{}\n{}", ran.output, ran.complaints, checked.output))
    };
    stand.bench.report(
        "an object larger than the system reaches is told and keeps its name",
        outcome,
    );
    let mut volume = Volume::open_for_change(&lock_image(&stand.disk)?)?;
    volume.delete(capability.address)?;
    tree::change_directory(&mut volume, abi::address::ROOT_DIRECTORY, |directory| {
        directory.remove("vast")
    })?;
    volume.commit()
}
