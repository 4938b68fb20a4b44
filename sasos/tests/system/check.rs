//! The rules that hold after anything: frames are accounted for, tables say what the server believes,
//! the processor remembers nothing that was taken away.

use std::collections::BTreeMap;

use abi::{Rights, address::PAGES_PER_SLOT, layout::OBJECT_STACK};
use kcore::{Frame, Machine};
use sasos::{
    directory::object::Object,
    lives::{task::Task, thread::Life},
};

use crate::harness::System;

/// References that each frame should have.
type Expected = BTreeMap<u32, u32>;

impl System {
    /// Everything but the number of frames that the store holds. The disk must be at rest.
    pub fn check(&mut self) {
        self.quiesce();
        let expected = self.check_tables();
        for (&frame, &references) in &expected {
            let there = self.platform.frame_references(Frame::of_fake_hardware(frame));
            assert_eq!(there, references, "references of frame {frame}");
        }
        self.check_remembered();
        for (caller, entry, pd, callee) in self.platform.kernel.portal_ways() {
            assert!(
                self.server.would_enter(caller, entry, pd, callee),
                "the kernel remembers a call of {caller:?} to {entry:#x} that the server would refuse"
            );
        }
        self.check_owners();
    }

    /// Every object that nobody has kept belongs to somebody who will end it.
    fn check_owners(&self) {
        let Self { server, .. } = self;
        let transient = || {
            let all = server.objects.iter();
            all.filter(|(_, object)| !object.is_persistent())
        };
        let is_stack = |object: &Object| object.record.flags & OBJECT_STACK != 0;
        for (id, object) in transient().filter(|(_, object)| !is_stack(object)) {
            assert!(
                server.is_owned(id),
                "the object at {:#x} is on no kill list",
                object.base()
            );
        }
        let killed = |task| server.tasks.get(task).is_some_and(Task::is_killed);
        for thread in server.threads.iter().filter(|thread| thread.life == Life::Live) {
            assert!(
                thread.doom.is_some() || !killed(thread.task),
                "{:?} was not told",
                thread.id
            );
        }
        let running = server.threads.iter().filter(|record| record.life == Life::Live).count();
        let spare: usize = server.tasks.iter().map(|task| task.stacks.len()).sum();
        let stacks = transient().filter(|(_, object)| is_stack(object)).count();
        assert_eq!(stacks, running + spare + server.callees.stack_count(), "stacks");
    }

    /// Everything. The system cannot go on after that.
    pub fn check_to_the_end(mut self) {
        self.check();
        let expected = self.check_tables();
        let Self {
            mut platform, server, ..
        } = self;
        server.store.dismantle(&mut platform);
        let used = platform.frames_total() - platform.frames_free();
        assert_eq!(
            used,
            expected.len() as u64,
            "frames in use; every one that is more has leaked"
        );
    }

    /// The server's view of objects and domains against the tables in memory.
    fn check_tables(&self) -> Expected {
        let mut expected = Expected::new();
        let mut leaves = BTreeMap::new();
        let mut resident_total = 0;
        for (id, object) in self.server.objects.iter() {
            let mut resident = 0;
            let mut from = 0;
            while let Some(number) = object.slots.next_with_leaf(from) {
                from = number + 1;
                let slot = object.slots.get(number).expect("it has a leaf");
                let leaf = slot.leaf().expect("it has a leaf");
                *expected.entry(leaf.frame().number()).or_default() += 1;
                leaves.insert(object.first_slot() + number, (id, leaf));
                for index in 0..PAGES_PER_SLOT as usize {
                    let entry = self.platform.leaf_get(leaf, index);
                    assert_eq!(
                        entry.is_some(),
                        slot.resident.has(index),
                        "residency of a page of {:#x}",
                        object.base()
                    );
                    if let Some(entry) = entry {
                        *expected.entry(entry.frame.number()).or_default() += 1;
                        resident += 1;
                    }
                }
            }
            assert_eq!(object.resident, resident, "resident pages of {:#x}", object.base());
            resident_total += resident;
        }
        for (space, _) in self.server.domains.iter() {
            let root = self.platform.kernel.spaces().get(space).root();
            let hardware = &self.platform.kernel.hardware;
            for table in hardware.upper_tables(root) {
                *expected.entry(table.number()).or_default() += 1;
            }
            for (slot, leaf, write, execute) in hardware.links(root) {
                *expected.entry(leaf.number()).or_default() += 1;
                let (id, own) = *leaves.get(&slot).expect("a slot is linked that no object owns");
                assert_eq!(own.frame(), leaf, "slot {slot:#x} is linked to another leaf");
                // One that is set aside is linked and empty.
                let object = self.server.objects.get(id);
                if object.record.pages == 0 {
                    assert_eq!(object.resident, 0, "pages of what is set aside");
                    continue;
                }
                let cached = self
                    .server
                    .cached(space, id)
                    .expect("an object is linked that the domain has not validated");
                assert!(
                    !write || cached.rights.contains(Rights::W),
                    "a link may be written without the right"
                );
                assert!(
                    !execute || cached.rights.contains(Rights::X),
                    "a link may be executed without the right"
                );
            }
        }
        assert!(resident_total > 0, "the first objects are there");
        expected
    }

    /// No processor remembers more than the tables say.
    fn check_remembered(&self) {
        for (space, _) in self.server.domains.iter() {
            let space = self.platform.kernel.spaces().get(space);
            self.platform
                .kernel
                .hardware
                .check_remembered(space.root(), space.load());
        }
    }
}
