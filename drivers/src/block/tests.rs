//! The disk driver from probe to failure, over the fake machine.

use super::*;
use crate::fake::virtio::{Device, Kind};
use crate::fake::{Machine, Memory};
use crate::msix::Message;

const SIGNAL: Signal = Signal::Message(Message::to_local_apic(0, 0x51));

fn try_probe(machine: &Machine, signal: Signal) -> Result<BlockDevice<Machine>, ProbeError> {
    BlockDevice::probe(&Pci::new(machine), Machine::DEVICE, &mut machine.clone(), signal)
}

fn disk(blocks: usize) -> (Machine, BlockDevice<Machine>) {
    let machine = Machine::with(Device::disk(blocks));
    let device = try_probe(&machine, SIGNAL).unwrap();
    (machine, device)
}

fn page_of(memory: &Memory, byte: u8) -> DataPage {
    let physical = memory.allocate();
    memory.write(physical, &[byte; 4096]);
    DataPage::in_fake_memory(physical)
}

#[test]
fn probe_agrees_on_what_it_understands() {
    let (machine, device) = disk(10);
    assert_eq!(device.capacity_blocks(), 10);
    assert_eq!(device.write_cache(), WriteCache::Back);
    assert!(!device.is_read_only());
    assert_eq!(device.room(), 85);
    machine.device(|fake, _| {
        assert_eq!(fake.accepted, 1 << 32 | 1 << 9);
        assert_eq!(fake.status, 0xf);
    });
    machine.look(|inner| {
        let config = &inner.functions[&Machine::DEVICE];
        assert_eq!(config.u16_at(4), 0x406, "memory, bus master, no interrupt pin");
        assert_eq!(config.u16_at(0x9a), 0x8002, "MSI-X on, not masked");
    });
}

#[test]
fn a_last_part_of_a_block_does_not_count() {
    let mut fake = Device::disk(3);
    let Kind::Disk(bytes) = &mut fake.kind else {
        unreachable!()
    };
    bytes.truncate(3 * 4096 - 512);
    let machine = Machine::with(fake);
    assert_eq!(try_probe(&machine, SIGNAL).unwrap().capacity_blocks(), 2);
}

/// The host makes the disk larger, and smaller again: what is behind the end is refused by the driver as soon as it has looked.
#[test]
fn a_disk_that_is_measured_again_has_the_size_that_the_device_tells() {
    let (machine, mut device) = disk(4);
    let resize = |blocks: usize| {
        machine.device(|fake, _| {
            let Kind::Disk(bytes) = &mut fake.kind else {
                unreachable!()
            };
            bytes.resize(blocks * 4096 + 512, 0);
        });
    };
    let page = page_of(&machine.memory, 0x5a);
    let write = |device: &mut BlockDevice<_>, block| {
        device.submit(7, Request::Write { block, page })?;
        assert_eq!(device.complete(), Some((7, Ok(()))));
        Ok(())
    };
    resize(9);
    assert_eq!(device.capacity_blocks(), 4);
    assert_eq!(write(&mut device, 8), Err(SubmitError::OutOfRange));
    device.measure();
    assert_eq!(device.capacity_blocks(), 9);
    assert_eq!(write(&mut device, 8), Ok(()));
    resize(5);
    device.measure();
    assert_eq!(write(&mut device, 4), Ok(()));
    assert_eq!(write(&mut device, 5), Err(SubmitError::OutOfRange));
    // A device that was given up tells nothing any more: its size stays as it was.
    resize(7);
    device.give_up();
    device.measure();
    assert_eq!(device.capacity_blocks(), 5);
}

#[test]
fn writes_are_read_back_and_interrupt() {
    let (machine, mut device) = disk(4);
    let (from, to) = (page_of(&machine.memory, 0x5a), page_of(&machine.memory, 0));
    device.submit(7, Request::Write { block: 3, page: from }).unwrap();
    assert!(device.has_completions());
    device.acknowledge_interrupt();
    assert_eq!(device.complete(), Some((7, Ok(()))));
    assert_eq!(device.complete(), None);
    device.submit(8, Request::Read { block: 3, page: to }).unwrap();
    assert_eq!(device.complete(), Some((8, Ok(()))));
    device.submit(9, Request::Flush).unwrap();
    assert_eq!(device.complete(), Some((9, Ok(()))));
    assert_eq!(machine.memory.read(to.physical()), [0x5a; 4096]);
    machine.device(|fake, _| {
        assert_eq!((fake.interrupts.as_slice(), fake.flushes), (&[0x51, 0x51, 0x51][..], 1));
    });
}

/// A disk that takes requests of so many pieces, and whose first block of 32 is full of 0, the next one of 1, and so on.
fn disk_of_runs(most_segments: u32) -> (Machine, BlockDevice<Machine>) {
    let mut fake = Device::disk(32);
    fake.offered |= FEATURE_MOST_SEGMENTS;
    fake.most_segments = most_segments;
    if let Kind::Disk(bytes) = &mut fake.kind {
        for (block, bytes) in bytes.chunks_mut(4096).enumerate() {
            bytes.fill(block as u8);
        }
    }
    let machine = Machine::with(fake);
    let device = try_probe(&machine, SIGNAL).unwrap();
    (machine, device)
}

#[test]
fn neighbouring_blocks_are_read_by_one_request() {
    let (machine, mut device) = disk_of_runs(126);
    for (first, count) in [(0, 1), (3, 2), (5, RUN_MAX), (32 - RUN_MAX as u64, RUN_MAX)] {
        let pages: Vec<DataPage> = (0..count).map(|_| page_of(&machine.memory, 0xff)).collect();
        let before = machine.device(|fake, _| fake.interrupts.len());
        device
            .submit_run(5, Operation::Read, first, pages.iter().copied())
            .unwrap();
        assert_eq!(device.complete(), Some((5, Ok(()))));
        assert_eq!(device.complete(), None);
        machine.device(|fake, _| assert_eq!(fake.interrupts.len(), before + 1));
        for (page, block) in pages.iter().zip(first..) {
            assert_eq!(machine.memory.read(page.physical()), [block as u8; 4096]);
        }
    }
    assert_eq!((device.outstanding(), device.room()), (0, 85));
}

#[test]
fn neighbouring_blocks_are_written_by_one_request() {
    let (machine, mut device) = disk_of_runs(126);
    let pages: Vec<DataPage> = (0..RUN_MAX)
        .map(|at| page_of(&machine.memory, 0x80 | at as u8))
        .collect();
    let before = machine.device(|fake, _| fake.interrupts.len());
    device
        .submit_run(5, Operation::Write, 7, pages.iter().copied())
        .unwrap();
    assert_eq!((device.complete(), device.complete()), (Some((5, Ok(()))), None));
    machine.device(|fake, _| {
        assert_eq!(fake.interrupts.len(), before + 1);
        let Kind::Disk(disk) = &fake.kind else { unreachable!() };
        for (block, bytes) in disk.chunks(4096).enumerate() {
            let is_in = (7..7 + RUN_MAX).contains(&block);
            let expected = if is_in { 0x80 | (block - 7) as u8 } else { block as u8 };
            assert!(bytes.iter().all(|byte| *byte == expected), "block {block}");
        }
    });
    let flush = device.submit_run(5, Operation::Flush, 0, pages.iter().copied());
    assert_eq!(flush, Err(SubmitError::QueueFull));
}

#[test]
fn a_run_that_the_disk_cannot_have_is_refused() {
    let pages = |machine: &Machine, count| {
        let pages: Vec<DataPage> = (0..count).map(|_| page_of(&machine.memory, 0)).collect();
        pages.into_iter()
    };
    // No device is asked for more than it says, nor one that says nothing for more than a block.
    let (machine, mut device) = disk(32);
    assert_eq!(
        device.submit_run(1, Operation::Read, 0, pages(&machine, 2)),
        Err(SubmitError::QueueFull)
    );
    let (machine, mut device) = disk_of_runs(4);
    assert_eq!(
        device.submit_run(1, Operation::Read, 0, pages(&machine, 5)),
        Err(SubmitError::QueueFull)
    );
    assert_eq!(
        device.submit_run(1, Operation::Read, 0, pages(&machine, 0)),
        Err(SubmitError::QueueFull)
    );
    assert_eq!(device.submit_run(1, Operation::Read, 0, pages(&machine, 4)), Ok(()));
    let (machine, mut device) = disk_of_runs(126);
    for first in [31, 32, u64::MAX] {
        assert_eq!(
            device.submit_run(1, Operation::Read, first, pages(&machine, 2)),
            Err(SubmitError::OutOfRange)
        );
    }
    assert_eq!(
        device.submit_run(1, Operation::Read, 0, pages(&machine, RUN_MAX + 1)),
        Err(SubmitError::QueueFull)
    );
    // As many as the queue has descriptors for; what does not fit comes later.
    machine.device(|fake, _| fake.is_prompt = false);
    let taken = (0..30).take_while(|&tag| {
        device
            .submit_run(tag, Operation::Read, 0, pages(&machine, RUN_MAX))
            .is_ok()
    });
    let taken = taken.count();
    assert_eq!(taken, 256 / (RUN_MAX + 2));
    assert_eq!(device.outstanding(), taken);
    // Its end is an error of all of them, once each.
    device.give_up();
    let lost = core::iter::from_fn(|| device.complete());
    assert_eq!(
        lost.filter(|(_, result)| *result == Err(DiskError::DeviceLost)).count(),
        taken
    );
    assert_eq!(
        device.submit_run(1, Operation::Read, 0, pages(&machine, 2)),
        Err(SubmitError::DeviceLost)
    );
}

#[test]
fn polling_needs_no_msix_and_gets_no_interrupt() {
    let machine = Machine::with(Device::disk(4));
    machine.look(|inner| inner.functions.get_mut(&Machine::DEVICE).unwrap().bytes[0x98] = 0x05);
    assert_eq!(try_probe(&machine, SIGNAL).unwrap_err(), ProbeError::NoMsix);
    let mut device = try_probe(&machine, Signal::Polling).unwrap();
    device.submit(1, Request::Flush).unwrap();
    assert_eq!(device.complete(), Some((1, Ok(()))));
    machine.device(|fake, memory| {
        assert!(fake.interrupts.is_empty());
        let available = fake.side.unwrap().at.available;
        assert_eq!(memory.read_u16(available), 1, "the device was asked not to interrupt");
    });
}

#[test]
fn what_the_disk_cannot_do_is_refused_at_once() {
    let (machine, mut device) = disk(4);
    let page = page_of(&machine.memory, 0);
    for block in [4, 5, u64::MAX / 8, u64::MAX / 8 + 1, u64::MAX] {
        assert_eq!(
            device.submit(0, Request::Read { block, page }),
            Err(SubmitError::OutOfRange)
        );
        assert_eq!(
            device.submit(0, Request::Write { block, page }),
            Err(SubmitError::OutOfRange)
        );
    }
    let mut fake = Device::disk(4);
    fake.offered |= 1 << 5;
    let machine = Machine::with(fake);
    let mut device = try_probe(&machine, SIGNAL).unwrap();
    let page = page_of(&machine.memory, 0);
    assert!(device.is_read_only());
    assert_eq!(
        device.submit(0, Request::Write { block: 0, page }),
        Err(SubmitError::ReadOnly)
    );
    device.submit(1, Request::Read { block: 0, page }).unwrap();
    assert_eq!(device.complete(), Some((1, Ok(()))));
}

#[test]
fn without_a_cache_a_flush_is_done_at_once_but_still_completes() {
    let mut fake = Device::disk(4);
    fake.offered &= !(1 << 9);
    fake.is_prompt = false;
    let machine = Machine::with(fake);
    let mut device = try_probe(&machine, SIGNAL).unwrap();
    assert_eq!(device.write_cache(), WriteCache::Through);
    let page = page_of(&machine.memory, 1);
    device.submit(1, Request::Write { block: 0, page }).unwrap();
    device.submit(2, Request::Flush).unwrap();
    assert_eq!(device.outstanding(), 2);
    assert!(device.has_completions());
    assert_eq!(device.complete(), Some((2, Ok(()))));
    assert_eq!(device.complete(), None);
    machine.device(|fake, memory| fake.serve(memory, 0));
    assert_eq!(device.complete(), Some((1, Ok(()))));
    assert_eq!(device.outstanding(), 0);
}

#[test]
fn a_full_queue_refuses_until_something_completes() {
    let mut fake = Device::disk(200);
    fake.is_prompt = false;
    let machine = Machine::with(fake);
    let mut device = try_probe(&machine, SIGNAL).unwrap();
    let page = page_of(&machine.memory, 1);
    for tag in 0..85 {
        device
            .enqueue(
                tag,
                Request::Write {
                    block: tag.into(),
                    page,
                },
            )
            .unwrap();
    }
    machine.device(|fake, _| assert_eq!(fake.doorbells, 0));
    device.ring();
    machine.device(|fake, _| assert_eq!((fake.doorbells, fake.held.len()), (1, 85)));
    assert_eq!(device.room(), 0);
    assert_eq!(device.submit(85, Request::Flush), Err(SubmitError::QueueFull));
    // Last first: completion is out of order.
    machine.device(|fake, memory| {
        (0..85).rev().for_each(|position| fake.serve(memory, position));
    });
    let tags: Vec<u32> = std::iter::from_fn(|| device.complete())
        .map(|(tag, result)| result.map(|()| tag).unwrap())
        .collect();
    assert_eq!(tags, (0..85).rev().collect::<Vec<_>>());
    device.submit(85, Request::Flush).unwrap();
}

#[test]
fn small_and_odd_queues_are_used_as_far_as_they_go() {
    for (most, room) in [
        (3, None),
        (4, Some(1)),
        (5, Some(1)),
        (6, Some(1)),
        (8, Some(2)),
        (200, Some(42)),
        (1024, Some(85)),
    ] {
        let mut fake = Device::disk(4);
        fake.most_descriptors = most;
        let probed = try_probe(&Machine::with(fake), SIGNAL);
        match room {
            Some(room) => assert_eq!(probed.unwrap().room(), room, "{most} descriptors"),
            None => assert_eq!(probed.unwrap_err(), ProbeError::NoQueue),
        }
    }
}

#[test]
fn the_status_byte_decides() {
    let expectations = [
        (1, DiskError::Failed),
        (2, DiskError::Unsupported),
        (3, DiskError::BadStatus(3)),
        (0xff, DiskError::BadStatus(0xff)),
    ];
    for (status, error) in expectations {
        let (machine, mut device) = disk(4);
        machine.device(|fake, _| fake.mischief.status = Some(status));
        device.submit(1, Request::Flush).unwrap();
        assert_eq!(device.complete(), Some((1, Err(error))));
        assert!(!device.is_lost());
        machine.device(|fake, _| fake.mischief.status = None);
        device.submit(2, Request::Flush).unwrap();
        assert_eq!(device.complete(), Some((2, Ok(()))));
    }
}

/// Three requests out, then `act`: all three must come back lost, once, and nothing be accepted
/// afterwards.
fn loses_everything(act: impl FnOnce(&mut Device, &Memory)) {
    let (machine, mut device) = disk(4);
    machine.device(|fake, _| fake.is_prompt = false);
    let page = page_of(&machine.memory, 1);
    device.submit(1, Request::Write { block: 0, page }).unwrap();
    device.submit(2, Request::Read { block: 1, page }).unwrap();
    device.submit(3, Request::Flush).unwrap();
    machine.device(act);
    device.acknowledge_interrupt();
    let mut lost: Vec<_> = std::iter::from_fn(|| device.complete()).collect();
    lost.sort_unstable_by_key(|(tag, _)| *tag);
    assert_eq!(lost, [1, 2, 3].map(|tag| (tag, Err(DiskError::DeviceLost))));
    assert!(device.is_lost() && !device.has_completions());
    assert_eq!((device.room(), device.outstanding()), (0, 0));
    assert_eq!(device.submit(4, Request::Flush), Err(SubmitError::DeviceLost));
    machine.device(|fake, _| assert!(fake.status == 0 || fake.mischief.ignores_reset));
}

#[test]
fn a_device_that_breaks_loses_its_requests_once() {
    loses_everything(|fake, _| {
        fake.break_down();
        assert_eq!(fake.interrupts, [0x51]);
    });
    // A head that exists as a descriptor only, one that is nothing, and one finished twice.
    for head in [1_u32, 250, 0xffff, 0x10000, u32::MAX] {
        loses_everything(|fake, memory| fake.side.as_mut().unwrap().put(memory, head, 0));
    }
    loses_everything(|fake, memory| {
        let used = fake.side.unwrap().at.used;
        memory.write(used + 2, &4_u16.to_le_bytes());
    });
    loses_everything(|fake, _| {
        fake.mischief.ignores_reset = true;
        fake.break_down();
    });
}

#[test]
fn a_caller_may_give_up() {
    let (machine, mut device) = disk(4);
    machine.device(|fake, _| fake.is_prompt = false);
    device.submit(5, Request::Flush).unwrap();
    device.give_up();
    assert!(device.has_completions());
    assert_eq!(device.complete(), Some((5, Err(DiskError::DeviceLost))));
    assert_eq!(device.complete(), None);
}

#[test]
fn a_dropped_device_is_reset() {
    let (machine, device) = disk(4);
    machine.device(|fake, _| assert_eq!(fake.status, 0xf));
    drop(device);
    machine.device(|fake, _| assert_eq!(fake.status, 0));
}

/// Probes a machine changed by `change`. The device must be left reset.
fn probe_error(change: impl FnOnce(&mut crate::fake::Inner)) -> ProbeError {
    let machine = Machine::with(Device::disk(4));
    machine.look(change);
    let error = try_probe(&machine, SIGNAL).unwrap_err();
    machine.device(|fake, _| assert!(fake.status == 0 || fake.mischief.ignores_reset));
    assert!(!error.to_string().is_empty());
    error
}

fn patched(offset: usize, bytes: &[u8]) -> ProbeError {
    probe_error(|inner| {
        inner.functions.get_mut(&Machine::DEVICE).unwrap().put(offset, bytes);
    })
}

#[test]
fn probe_refuses_what_it_cannot_drive() {
    use crate::pci::BarError::{NoSuchBar, Ports, Unassigned};
    use crate::virtio::Structure::{Common, Device as Own, Notify};
    let bar = |index, error| ProbeError::Bar { index, error };

    // The capability list is absent, or a structure is missing from it or too short to be one.
    assert_eq!(patched(0x06, &[0]), ProbeError::Missing(Common));
    assert_eq!(patched(0x54, &[0x05]), ProbeError::Missing(Common));
    assert_eq!(patched(0x66, &[16]), ProbeError::Missing(Notify));
    assert_eq!(patched(0x7b, &[3]), ProbeError::Missing(Own));

    // BARs without an address, of ports, beyond the last; structures beyond the BAR's end, short or
    // unaligned.
    assert_eq!(patched(0x20, &[0xc, 0, 0, 0, 0, 0, 0, 0]), bar(4, Unassigned));
    assert_eq!(patched(0x58, &[0]), bar(0, Unassigned));
    assert_eq!(patched(0x58, &[6]), bar(6, NoSuchBar));
    assert_eq!(patched(0x20, &[1, 0xc0, 0, 0]), ProbeError::Missing(Common));
    assert_eq!(patched(0x14, &[1, 0xc0, 0, 0]), bar(1, Ports));
    assert_eq!(patched(0x14, &[0; 4]), bar(1, Unassigned));
    assert_eq!(patched(0x5c, &[4, 0x30, 0, 0]), ProbeError::OutsideBar { index: 4 });
    assert_eq!(patched(0x5c, &[2, 0, 0, 0]), ProbeError::OutsideBar { index: 4 });
    assert_eq!(patched(0x60, &[0x37, 0, 0, 0]), ProbeError::OutsideBar { index: 4 });
    assert_eq!(patched(0x60, &[0xff; 4]), ProbeError::OutsideBar { index: 4 });
    assert_eq!(patched(0x9a, &[0xff, 7]), ProbeError::OutsideBar { index: 1 });
    assert_eq!(
        patched(0x9c, &[0xf9, 0xff, 0xff, 0xff]),
        ProbeError::OutsideBar { index: 1 }
    );
    assert_eq!(
        patched(0x14, &[0, 0, 0x20, 0]),
        ProbeError::Unmappable { physical: 0x20_0000 }
    );

    // A doorbell outside the doorbells.
    assert_eq!(patched(0x74, &[0xff, 0xff, 0xff, 0xff]), ProbeError::NoQueue);
    assert_eq!(patched(0x74, &[0x55, 5, 0, 0]), ProbeError::NoQueue);

    // The device will not do it.
    assert_eq!(
        probe_error(|inner| inner.device.offered &= !(1 << 32)),
        ProbeError::Legacy
    );
    assert_eq!(
        probe_error(|inner| inner.device.mischief.refuses_features = true),
        ProbeError::FeaturesRefused
    );
    assert_eq!(
        probe_error(|inner| inner.device.mischief.refuses_vector = true),
        ProbeError::VectorRefused
    );
    assert_eq!(
        probe_error(|inner| inner.device.most_descriptors = 0),
        ProbeError::NoQueue
    );
    for frames in 0..3 {
        assert_eq!(probe_error(|inner| inner.frames_left = frames), ProbeError::OutOfMemory);
    }
    let never_reset = probe_error(|inner| {
        inner.device.mischief.ignores_reset = true;
        inner.device.status = 7;
    });
    assert_eq!(never_reset, ProbeError::ResetTimeout);
}

#[test]
fn a_disk_whose_registers_never_hold_still_is_empty() {
    let mut fake = Device::disk(4);
    fake.mischief.never_holds_still = true;
    assert_eq!(try_probe(&Machine::with(fake), SIGNAL).unwrap().capacity_blocks(), 0);
}

#[test]
fn a_capability_list_that_is_a_loop_ends() {
    assert_eq!(
        patched(0x41, &[0x40]),
        ProbeError::Missing(crate::virtio::Structure::Common)
    );
}

mod properties;
