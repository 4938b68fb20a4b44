//! The one table of system calls.
//!
//! A call is made with `syscall`: the number in rax, up to six arguments in rdi, rsi, rdx, r10, r8
//! and r9. It comes back with the error in rax (0 is success), the value in rdx, a second value in
//! rsi. **Every other register is clobbered** (register rule, `docs/decisions/0002`); the stubs declare that.
//! The manual (`docs/spec/abi.md`) and the C header are made from this table, and a golden file
//! shows each change of it as a diff. The calls of the bare µ-kernel are a table of the same make
//! ([`crate::nucleus`]).

#![allow(
    clippy::doc_markdown,
    reason = "the texts of the table are documentation too, and stand in the manual as they are"
)]

/// The table's entry for a call.
#[derive(Debug)]
pub struct CallInfo {
    /// Number, in rax.
    pub number: u64,
    /// Name in C, after Mungi where Mungi has it.
    pub name: &'static str,
    /// Name in Rust.
    pub rust_name: &'static str,
    /// Arguments in order.
    pub arguments: &'static [&'static str],
    /// The value in rdx, or "".
    pub value: &'static str,
    /// The second value in rsi, or "".
    pub value2: &'static str,
    /// Rights it needs.
    pub needs: &'static str,
    /// Its effect.
    pub text: &'static str,
}

/// Defines the calls of one table: an enum of numbers, `TABLE`, and in `arguments` a struct for each call, so that whoever answers
/// a call takes its arguments by name.
macro_rules! calls {
    ($(#[$meta:meta])* $enum:ident; $($number:literal $name:ident $rust:ident ($($argument:ident),*) -> $value:literal, $value2:literal; $needs:literal; $text:literal;)*) => {
        $(#[$meta])*
        #[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
        #[repr(u64)]
        pub enum $enum { $(#[doc = $text] $name = $number,)* }

        impl $enum {
            /// The call with this number.
            pub const fn from_number(number: u64) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }

        /// All calls of this table, by number.
        pub const TABLE: &[$crate::call::CallInfo] = &[$($crate::call::CallInfo {
            number: $number,
            name: stringify!($name),
            rust_name: stringify!($rust),
            arguments: &[$(stringify!($argument),)*],
            value: $value,
            value2: $value2,
            needs: $needs,
            text: $text,
        },)*];

        /// The arguments of each call, by name.
        pub mod arguments {
            $(
                #[doc = concat!("Arguments of `", stringify!($name), "`.")]
                #[derive(Copy, Clone, PartialEq, Eq, Debug)]
                pub struct $name { $(#[doc = concat!("Argument `", stringify!($argument), "`, as the table tells.")] pub $argument: u64,)* }

                impl From<[u64; 6]> for $name {
                    #[inline(always)]
                    fn from(words: [u64; 6]) -> Self {
                        let [$($argument,)* ..] = words;
                        Self { $($argument),* }
                    }
                }
            )*
        }
    };
}
pub(crate) use calls;

calls! {
    /// A system call.
    Call;
    0 ThreadMyId thread_my_id() -> "thread", ""; "-";
        "The calling thread.";
    1 PdxCall pdx_call(entry, parameter0, pd, parameter1, parameter2, parameter3) -> "result", "result2"; "P";
        "Protected call of a registered entry point. pd is PD_MERGE, PD_EMPTY or the address of an ApdDescription; the callee's domain is that extended by the Clist registered with the PDX capability. The callee gets the parameters as the arguments of a C function, on a stack of its own domain. A callee that faults without a handler ends the call with CalleeFault.";
    2 PdxReturn pdx_return(result, result2) -> "", ""; "-";
        "Returns from a protected call to its caller.";
    3 DomainCall domain_call(entry, parameter0, parameter1, parameter2, parameter3) -> "result", "result2"; "-";
        "Calls an entry of a kernel domain, as the kernel page names them: code of the kernel that changes no space, never waits, and runs with interrupts off.";

    8 ObjCreate obj_create(bytes, password) -> "address", "password"; "account";
        "Makes an object of whole pages, zero-filled, whose owner capability has that password (0: the system makes one). It stands on the task's kill list until KeepObject. The creator's domain has all rights at once. A locked domain that names a password gets Locked.";
    9 ObjDelete obj_delete(address) -> "", ""; "D";
        "Destroys the object that holds the address; every domain loses it before the call returns. The system objects stay, whatever the rights (InUse).";
    10 ObjResize obj_resize(address, bytes) -> "", ""; "RWXD";
        "Grows or shrinks the object in place.";
    11 ObjPasswd obj_passwd(address, password, rights) -> "password", ""; "RWXD";
        "Registers the password with those rights (password 0: the system makes one); rights 0 removes it, PDX passwords included; P is given by ObjCrePdx alone. A locked domain that names a new password gets Locked. Revocation takes effect before the call returns and is durable with it.";
    12 ObjInfo obj_info(address, flags, info, room) -> "bytes", ""; "R (RWXD to change)";
        "Writes an ObjectInfo (a report) as it was before the call, then changes from what stood there what the INFO_SET_ flags name, for which it has to be INFO_SET_BYTES long. With INFO_USED its rights are only those that the domain used already; otherwise all Clists are searched for more.";
    13 ObjCrePdx obj_cre_pdx(address, password, clist, entries, count) -> "password", ""; "RWXD";
        "Registers a PDX capability (password 0: the system makes one): its callers may enter at those addresses (an array of 64-bit words) in a domain extended by that Clist (0: none), as long as the password by which the caller could read it is one of the Clist's. The PDX capabilities of an object name 192 addresses together at most: TableFull. A locked domain gets Locked (see ApdLock).";
    14 KeepObject keep_object(address) -> "", ""; "RWXD";
        "Takes the object off the task's kill list: it persists until it is destroyed. Its creator's domain has the rights of its Clists from then on; those it had without a capability it may lose at any time, so the owner capability belongs into a Clist.";
    15 ObjClone obj_clone(source, extra_bytes, password) -> "address", "password"; "RX";
        "Makes an object with the content and page limits of the source, copy-on-write, and extra zero-filled bytes behind it; otherwise as ObjCreate.";
    16 ObjRetire obj_retire(address) -> "", ""; "D";
        "Destroys the object as ObjDelete does, unless a domain other than the caller's has it: one that used a right on it and has not dropped it since (InUse).";

    24 PageCopy page_copy(from, to, pages) -> "", ""; "R, W";
        "Copies pages, copy-on-write. The ranges are page-aligned, disjoint and each inside one object. A call that fails has copied nothing, or whole pages from the first one on: rights, account and disk are looked at before.";
    25 PageUnMap page_un_map(page, pages, disposition) -> "", ""; "W";
        "UNMAP_ZERO drops content; UNMAP_REPLACE drops changes since the last checkpoint (DiskError while that has failed).";
    26 PageFlush page_flush(page, pages) -> "", ""; "W";
        "Everything in the range, and the object's entry in the object table, is on stable storage when it returns.";
    27 PageLimit page_limit(page, pages, rights) -> "", ""; "RWXD";
        "Limits what any domain may do with the pages, whatever its rights on the object: a subset of RWX with R; or none, for pages of a transient object that are not resident, which nobody can touch until they are limited again. If it fails half-way, pages from the first one on have the new limits and the others have theirs.";
    28 PageFlushAll page_flush_all(ranges, count) -> "", ""; "R on the array, W on each range";
        "Makes several ranges durable together, as PageFlush does each: ranges is the address of an array of pairs of 64-bit words, a page and a number of pages, count (FLUSH_RANGES_MAX at most) the number of pairs. The ranges may lie in several objects. A power cut leaves all of them as they were at one moment of the call, or none.";

    32 ApdInsert apd_insert(slot, clist) -> "", ""; "R on the Clist";
        "Inserts a Clist before the slot of the caller's APD; it is validated at once.";
    33 ApdDelete apd_delete(slot) -> "", ""; "-";
        "Removes a slot; later ones shift up.";
    34 ApdGet apd_get(description, room) -> "bytes", ""; "W on the buffer";
        "Writes the ApdDescription (a report) of the caller.";
    35 ApdLock apd_lock(slot) -> "", ""; "-";
        "Locks that slot and all before it, for ever (u64::MAX: all sixteen, the empty ones too). A domain with a locked slot, and the domain of a call merged with it, cannot register procedures; of P capabilities only those in locked slots count, creation and ownership of an object let nobody call it, and an APD shown to a procedure must consist of locked slots. A procedure runs with its registered Clist: whoever locked the domain chose it. A task that can write a locked Clist, or the code of what it names, is not confined.";
    36 ApdLookup apd_lookup(address, rights) -> "capability", ""; "-";
        "Validates and caches the rights on the object; tells the address of the granting capability, or 0 where the rights did not come from a Clist.";
    37 ApdFlush apd_flush() -> "", ""; "-";
        "Drops the validation cache, except for what the task created and still has on its kill list; Clists are looked at anew. A slot whose Clist was readable by a password that is revoked since grants nothing.";

    40 TaskCreate task_create(entry, parameter, apd, limit_pages, priority, limit_share) -> "thread", "task"; "X on the entry";
        "A first thread in a new domain with that APD (address of an ApdDescription; 0: the caller's). The object that holds the entry moves to the new task's kill list if it is on the caller's, and the new domain gets all rights on it. With TASK_FOREGROUND beside the priority, the task is given the foreground as by ConsoleForeground, before it runs; where the caller does not hold the terminal, nothing comes of it. limit_pages bounds the memory of the task (0: the system's bound, beyond which the disk takes objects over; with another one it takes none), limit_share its processor time, with that of all tasks below it, in thousandths of all processors (0: not beyond an equal part of what its parent may have). Threads of a task that has had its share wait behind all others until the period of 100 ms ends.";
    41 ThreadCreate thread_create(entry, parameter, priority) -> "thread", ""; "X on the entry";
        "A thread in the caller's task and domain.";
    42 ThreadDelete thread_delete(thread, status) -> "", ""; "self, parent, same task; any thread for the first task at home";
        "Ends the thread (0: the caller). When the last thread of a task ends, the task ends and its kill list is deleted. Ending the first thread of another task ends that task. A thread inside a protected procedure of another domain may return first: after a second of its own processor time and waiting the procedure's handler for EXCEPTION_KILL is called, if there is one, and after one more that call is unwound.";
    43 ThreadWait thread_wait(thread, timeout_ns, report, room) -> "thread", "status"; "parent";
        "Waits for a child to end (0: any) and reaps it. If report is not 0 an ExitReport (a report) is written there.";
    44 ThreadSleep thread_sleep(thread, ns) -> "", ""; "self or same task";
        "0 yields; FOREVER suspends until ThreadResume. Thread 0 is the caller; another thread can only be suspended (FOREVER), and not while it is inside a protected procedure of another domain (InUse).";
    45 ThreadResume thread_resume(thread) -> "", ""; "parent or same task";
        "Wakes a sleeping or suspended thread. One that sleeps inside a protected procedure of another domain sleeps on.";
    46 ThreadInfo thread_info(thread, report, room) -> "bytes", ""; "W on the buffer";
        "Writes the ThreadReport (a report) of a thread (0: the caller). What SystemInfo would not list is NoSuchThread.";
    47 ExcptReg excpt_reg(kind, handler) -> "old handler", ""; "X on the handler";
        "Registers the task's handler for a kind of exception (0: none). It is called as a C function (kind, address, instruction, wanted rights) on the thread's own stack and ends with ExcptReturn.";
    48 ExcptReturn excpt_return(action, address) -> "", ""; "-";
        "Leaves the exception handler: RESUME_RETRY, RESUME_AT address or RESUME_END.";

    56 SemCreate sem_create(address, value) -> "", ""; "RW";
        "Makes a semaphore named by the address. A task may have made 1,024 that still are; another one is LimitReached.";
    57 SemDelete sem_delete(address) -> "", ""; "RWXD";
        "Deletes it; waiters get Deleted.";
    58 SemWait sem_wait(address, timeout_ns) -> "", ""; "R";
        "Takes one, or waits.";
    59 SemSignal sem_signal(address) -> "", ""; "R";
        "Gives one.";
    60 AddressWait address_wait(address, expected, timeout_ns) -> "", ""; "R";
        "Waits until woken, if the 32-bit word at the address holds the expected value; else Changed. A thread that has lost its right meanwhile gets Protection when another one wakes waiters of this word.";
    61 AddressWake address_wake(address, count) -> "woken", ""; "R";
        "Wakes up to count threads that wait on the address, and tells how many: 32 at most, unless these are all. A waiter whose right has to be looked up first is woken as well and not counted, unless count is more than 32.";

    72 ConsoleWrite console_write(stream, address, bytes) -> "written", ""; "R on the buffer";
        "Writes to the terminal (0) or the control line (1), which is the first task's: others get Protection. May write less than asked.";
    73 ConsoleRead console_read(stream, address, bytes) -> "read", ""; "W on the buffer";
        "Reads at least a byte, from a stream as `ConsoleWrite` has them; 0 means the end (the terminal has none in script mode).";
    74 ConsoleForeground console_foreground(thread) -> "", ""; "holder of the terminal";
        "An interrupt at the terminal ends the task of that thread, a child of the caller (0: none, it is an ordinary character). The first task holds the terminal, and each task that a holder gave the foreground to, until it ends or a holder before it passes the foreground on anew; others get Protection. Typed three times within a second, it ends the task that the first task gave the foreground to, whatever is in the foreground then.";
    75 ClockRead clock_read() -> "ns", "ns since 1970"; "-";
        "Nanoseconds since boot, and the time of day.";
    76 RandomRead random_read() -> "word", ""; "-";
        "A word from the system's random generator.";
    77 SystemInfo system_info(topic, index, buffer, room) -> "bytes", "position"; "W on the buffer";
        "Writes the report that the topic names. Lists leave out what the caller may not see: with D on the root directory everything is in them, otherwise the threads of the caller's task and their descendants, their domains and callees, and objects that the caller's domain made or is known to have a right on.";
    78 SystemControl system_control(operation, argument, second, third, fourth) -> "", ""; "D on the root directory";
        "Does one of the CONTROL_ operations: checkpoint, power off, reboot, scrub, keep or drop a snapshot, measure the disk. Only those about snapshots use the arguments second, third and fourth, for the name.";
}

#[cfg(test)]
mod tests {
    use super::{Call, TABLE};

    #[test]
    fn numbers_rise_and_come_back() {
        for pair in TABLE.windows(2) {
            assert!(pair[0].number < pair[1].number);
        }
        for info in TABLE {
            assert_eq!(
                Call::from_number(info.number).map(|call| call as u64),
                Some(info.number)
            );
            assert!(info.arguments.len() <= 6);
        }
    }
}
