//! How much a task may see of others.

use abi::{
    Call, Error, Rights,
    address::{PAGE, ROOT_DIRECTORY},
    layout::{PD_EMPTY, PD_MERGE, TOPIC_DOMAIN, TOPIC_OBJECT, TOPIC_THREAD},
};
use kcore::ThreadId;

use crate::harness::{ENTRY, PROGRAM_PAGES, System};

impl System {
    /// The numbers of all items of a list that a thread is told of.
    fn listed(&mut self, thread: ThreadId, topic: u64) -> Vec<u64> {
        let (buffer, _) = self.object(thread, 1);
        let (mut listed, mut next) = (Vec::new(), 0);
        while self
            .call(thread, Call::SystemInfo, &[topic, next, buffer, PAGE])
            .is_ok()
        {
            let [number] = self.words(thread, buffer);
            listed.push(number);
            next = number + 1;
        }
        self.call(thread, Call::ObjDelete, &[buffer]).unwrap();
        listed.retain(|&number| number != buffer);
        listed
    }

    fn told_of(&mut self, thread: ThreadId, other: ThreadId) -> bool {
        let told = self.call(thread, Call::ThreadInfo, &[other.0, 0, 0]);
        assert!(told.is_ok() || told == Err(Error::NoSuchThread));
        told.is_ok()
    }
}

#[test]
fn a_task_without_capabilities_sees_its_own_and_nothing_of_others() {
    let mut system = System::boot(150);
    let first = system.first;
    let task = system.confined(&[], 0);
    let neighbour = system.confined(&[], 0);
    let (object, _) = system.object(neighbour, 1);
    system.set_word(neighbour, object, 1).unwrap();
    let image = system.image_of(task);
    let clone = system.call(task, Call::ObjClone, &[image, 0, 0]).unwrap().0;
    let arguments = [clone + ENTRY, clone + PROGRAM_PAGES * PAGE, 0, 0, 3];
    let child = ThreadId(system.call(task, Call::TaskCreate, &arguments).unwrap().0);
    let sibling = system.call(task, Call::ThreadCreate, &[image + ENTRY, 0, 3]).unwrap().0;
    let sibling = ThreadId(sibling);
    let own = [task, child, sibling];

    let mut seen = system.listed(task, TOPIC_THREAD);
    seen.sort_unstable();
    let mut expected = own.map(|thread| thread.0);
    expected.sort_unstable();
    assert_eq!(seen, expected);
    for other in own {
        assert!(system.told_of(task, other));
        // A child sees neither its parent nor its parent's other threads.
        assert_eq!(system.told_of(child, other), other == child);
    }
    for other in [first, neighbour] {
        assert!(!system.told_of(task, other));
        assert!(system.told_of(first, other));
    }
    assert_eq!(system.listed(task, TOPIC_DOMAIN).len(), 2, "its own and its child's");
    assert_eq!(system.listed(child, TOPIC_DOMAIN).len(), 1);
    let objects = system.listed(task, TOPIC_OBJECT);
    assert!(objects.contains(&image) && !objects.contains(&object) && !objects.contains(&ROOT_DIRECTORY));
    let (mine, _) = system.object(task, 1);
    assert!(system.listed(task, TOPIC_OBJECT).contains(&mine));
    // The first one that is told begins at the address asked for, or behind it.
    let (buffer, _) = system.object(task, 1);
    for from in [mine, mine - 1] {
        let told = system.call(task, Call::SystemInfo, &[TOPIC_OBJECT, from, buffer, PAGE]);
        assert!(told.is_ok() && system.words(task, buffer) == [mine]);
    }

    // With D on the root directory everything is seen.
    let all = system.listed(first, TOPIC_THREAD);
    assert!(
        own.iter()
            .chain(&[first, neighbour])
            .all(|thread| all.contains(&thread.0))
    );
    let all = system.listed(first, TOPIC_OBJECT);
    assert!([object, mine, ROOT_DIRECTORY].iter().all(|base| all.contains(base)));
    assert!(all.is_sorted());
    assert!(system.listed(first, TOPIC_DOMAIN).len() >= 4);
    system.check();
}

/// Reading the root directory shows no more.
#[test]
fn it_takes_the_right_to_delete_the_root_directory() {
    let mut system = System::boot(151);
    let first = system.first;
    for (rights, all) in [(Rights::R, false), (Rights::D, true)] {
        let capability = system.granting(ROOT_DIRECTORY, rights);
        let (list, _) = system.clist(first, &[capability]);
        let task = system.confined(&[list], 0);
        assert_eq!(system.told_of(task, first), all, "{rights:?}");
        assert_eq!(system.listed(task, TOPIC_THREAD).len() > 1, all, "{rights:?}");
    }
}

/// A callee is a domain of its own: it sees the thread that it runs on and no other of the caller's task, and what it made.
#[test]
fn a_callee_does_not_see_the_task_whose_thread_it_runs_on() {
    let mut system = System::boot(152);
    let first = system.first;
    let service = system.service(first);
    let task = system.client(&[(service.image, service.password)]);
    let image = system.image_of(task);
    let sibling = system.call(task, Call::ThreadCreate, &[image + ENTRY, 0, 3]).unwrap().0;
    let child = system.task(task);
    assert!(system.told_of(task, ThreadId(sibling)) && system.told_of(task, child));
    system.enter(task, service.image + ENTRY, PD_EMPTY);
    assert!(system.told_of(task, task));
    assert!(!system.told_of(task, ThreadId(sibling)) && !system.told_of(task, child));
    assert_eq!(system.listed(task, TOPIC_THREAD), [task.0]);
    system.check();
}

/// A callee that is merged with a task's domain is that task's, and so its parent's.
#[test]
fn a_parent_sees_what_is_merged_with_its_child() {
    let mut system = System::boot(153);
    let first = system.first;
    let service = system.service(first);
    let (list, _) = system.clist(first, &[(service.image, service.password)]);
    let task = system.confined(&[list], 0);
    let image = system.image_of(task);
    let clone = system.call(task, Call::ObjClone, &[image, 0, 0]).unwrap().0;
    let arguments = [clone + ENTRY, clone + PROGRAM_PAGES * PAGE, 0, 0, 3];
    let child = ThreadId(system.call(task, Call::TaskCreate, &arguments).unwrap().0);
    assert_eq!(system.listed(task, TOPIC_DOMAIN).len(), 2);
    system.enter(child, service.image + ENTRY, PD_MERGE);
    assert_eq!(system.depth(child), 1);
    assert_eq!(system.listed(task, TOPIC_DOMAIN).len(), 3);
}
