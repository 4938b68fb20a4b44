//! Spaces that end at any moment: in messages, faults, waits and on their way to another processor.
//!
//! Clients in some spaces send to a server, to each other and to threads that are gone, get pages from their pagers, and lose them again. The killer deletes one
//! space, pager, client or server after the other wherever it is, and starts others. Now and then the kernel checks what must always hold.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{
    Rights,
    address::PAGE,
    nucleus::{ANYONE, MESSAGE_WORDS, tag, timeouts},
};
use nucleus::{
    call::{
        self,
        memory::{Window, write},
    },
    log, message,
};
use testing::Random;

use crate::{
    arch,
    case::{Case, Failure, Outcome, Setting, case, ensure},
    world::{World, memory, numbered, pager_entry},
};

/// The cases.
pub const CASES: &[Case] = &[case("killer/spaces", spaces)];

/// Of so many calls that are asked for, the clients send one message.
const CALLS_FOR_A_MESSAGE: u64 = 4;
/// Messages unless the command line says otherwise.
const MESSAGES: u64 = 20_000;
/// Spaces at a time, and threads in each.
const SPACES: usize = 4;
const CLIENTS: u64 = 3;
/// Ends between two checks.
const CHECK_EACH: u64 = 20;
/// Bytes of a stack in the root space.
const STACK: u64 = 8192;
/// Where clients touch new pages, and how many they look for. Their pager has fewer.
const PLACE: u64 = 0x1234_0000_0000;
const PAGES: u64 = 200;

/// Messages that the server has had.
static HAD: AtomicU64 = AtomicU64::new(0);

nucleus::thread_entry!(server_entry, server);
/// Answers with the thread that has sent before, and the seed of what the sender is to do next.
fn server(seed: u64) {
    let mut last = 0;
    let mut next = message::receive();
    loop {
        next = match next {
            Ok(got) => {
                let had = HAD.fetch_add(1, Relaxed);
                let before = core::mem::replace(&mut last, got.sender);
                message::reply_and_wait(got.sender, tag(0, 2, 0), [before, seed ^ had << 20, 0, 0])
            }
            // It did not wait any more, or is gone.
            Err(_) => message::receive(),
        };
    }
}

nucleus::thread_entry!(client_entry, client);
/// Asks the server what to do, and does it. It ends when the server is gone.
fn client(server: u64) {
    let mut random = Random::at(server, 3);
    loop {
        let words = random.below(MESSAGE_WORDS as u64 + 1);
        let Ok(got) = message::call(server, tag(0, words, 0), [0; 4]) else {
            return;
        };
        let [other, seed, ..] = got.words;
        random = Random::at(seed ^ random.word(), 4);
        let within = timeouts(random.below(200) as u32, random.below(200) as u32);
        match random.below(5) {
            0 => {
                let _ = call::ipc(other, 0, tag(0, words, 0), within, Window::NOTHING, [0; 4]);
            }
            1 => {
                let _ = call::ipc(other, other, tag(0, 4, 0), within, Window::NOTHING, [0; 4]);
            }
            2 => {
                let _ = message::receive_within(ANYONE, random.below(100) as u32);
            }
            3 => {
                let _ = call::yield_now();
            }
            _ => write(PLACE + random.below(PAGES) * PAGE, seed),
        }
    }
}

/// The killer's hands: a stack for the server and for the pager of each space.
struct Killer<'a> {
    setting: &'a Setting,
    stacks: u64,
    server: u64,
}

impl Killer<'_> {
    /// A thread of the root space on a stack of its own: no other one that lives has the number.
    fn starts(&self, entry: call::ThreadEntry, number: u64, parameter: u64) -> Outcome<u64> {
        let top = self.stacks + (number + 1) * STACK;
        Ok(arch::start_here(entry, top, parameter, 3)?)
    }

    fn serves(&mut self, seed: u64) -> Outcome {
        self.server = self.starts(server_entry(), SPACES as u64, seed)?;
        Ok(())
    }

    fn begins(&self, number: u64) -> Outcome<World> {
        let pager = || self.starts(pager_entry(), number, number);
        let mut world = World::with(self.setting, pager, 0, 0)?;
        for _ in 0..CLIENTS {
            world.start(client_entry(), self.server)?;
        }
        Ok(world)
    }
}

fn spaces(setting: &Setting) -> Outcome {
    let wanted = setting.calls.map_or(MESSAGES, |calls| calls / CALLS_FOR_A_MESSAGE);
    let mut random = Random::at(setting.seed, 9);
    let stacks = memory(setting.root, 1).take_run((SPACES as u64 + 1) * STACK);
    let mut killer = Killer {
        setting,
        stacks: stacks.ok_or(Failure::new(format_args!("no memory for stacks")))?,
        server: 0,
    };
    HAD.store(0, Relaxed);
    killer.serves(random.word())?;
    let mut worlds = [const { None }; SPACES];
    let (mut ended, mut lost, mut servers, mut quiet) = (0, 0, 1, 0);
    while HAD.load(Relaxed) < wanted {
        let had = HAD.load(Relaxed);
        for (number, place) in worlds.iter_mut().enumerate() {
            if place.is_none() {
                *place = Some(killer.begins(number as u64)?);
            }
        }
        let _ = message::receive_within(ANYONE, random.below(2_000) as u32);
        let number = random.below(SPACES as u64);
        let place = &mut worlds[number as usize];
        match random.below(8) {
            0 => {
                call::thread_delete(killer.server)?;
                killer.serves(random.word())?;
                servers += 1;
            }
            1 => {
                // Pages that its pager has given are taken back from its threads.
                call::flush(
                    Window::memory(numbered(number), 20, Rights::R),
                    Rights::RWX.bits().into(),
                    0,
                )?;
                lost += 1;
            }
            2 => {
                if let Some(thread) = place.as_ref().and_then(|world| random.pick(world.threads())) {
                    // It may have ended by itself, for its server was gone.
                    let _ = call::thread_delete(thread);
                }
            }
            kind => {
                if let Some(world) = place.take() {
                    if kind % 2 == 0 {
                        world.end()?;
                    } else {
                        world.end_behind_its_pager()?;
                    }
                    ended += 1;
                    if ended % CHECK_EACH == 0 {
                        call::kernel_check()?;
                    }
                }
            }
        }
        // All threads may wait for pages or partners that will not come; they are ended soon. But not for ever.
        quiet = if HAD.load(Relaxed) == had { quiet + 1 } else { 0 };
        ensure!(quiet < 1_000, "nothing happens any more behind {had} messages");
    }
    for world in worlds.into_iter().flatten() {
        world.end()?;
    }
    call::thread_delete(killer.server)?;
    call::kernel_check()?;
    log!(
        "killer: {} messages under seed {}; {ended} spaces ended, {lost} lost their pages, {servers} servers",
        HAD.load(Relaxed),
        setting.seed
    );
    World::new(setting, 0, 0)?.end()
}
