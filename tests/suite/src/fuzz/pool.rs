//! The surroundings of an assistant: objects of several kinds, and the words that calls are given.

use abi::{
    Rights,
    address::{FIRST_PROGRAM, PAGE, ROOT_CLIST, ROOT_DIRECTORY, SLOT, STACK_BYTES, STACKS_START, USER_END, USER_START},
    error::Result,
    layout::{CLIST_MAGIC, CLIST_SORTED, CLIST_VERSION},
};
use rt::call;

use crate::arch;
use testing::Random;

/// The password of the assistant's own objects, known to all of them.
pub const PASSWORD: u64 = 0x7061_7373_776f_7264;

/// Objects that calls have made, remembered for later calls.
const MADE: usize = 16;

/// The state of an assistant.
pub struct Surroundings {
    /// Data, one page more than a slot.
    pub data: u64,
    /// Code that ends its thread, or returns from a protected call.
    pub code: u64,
    /// A Clist with good and bad capabilities; it is in the APD.
    pub clist: u64,
    /// A place for buffers, descriptions and entries.
    pub buffer: u64,
    /// The page shared with the case.
    pub progress: u64,
    /// A kept object, or zero.
    pub kept: u64,
    /// The image.
    pub image: u64,
    /// A password of a PDX capability of `code`.
    pub pdx_password: u64,
    /// Threads made lately.
    pub threads: [u64; 4],
    /// Objects made lately.
    pub made: [u64; MADE],
    /// Values that calls gave lately.
    pub values: [u64; 4],
    next: usize,
}

/// Offset in `code` of the procedure that returns at once; the one that ends its thread is at its beginning.
pub const RETURN_AT: u64 = 64;
/// Offset in the buffer of an APD description.
const DESCRIPTION_AT: u64 = 256;

impl Surroundings {
    /// Makes them.
    ///
    /// # Errors
    /// As `ObjCreate` and the others.
    pub fn new(seed: u64, first: u64, progress: u64, kept: u64) -> Result<Self> {
        let mut random = Random::at(!seed, first);
        let create = |bytes| call::obj_create(bytes, PASSWORD).map(|(base, _)| base);
        let (data, code, clist, buffer) = (create(SLOT + PAGE)?, create(PAGE)?, create(2 * PAGE)?, create(PAGE)?);
        arch::write_bytes(code, arch::END_CODE);
        arch::write_bytes(code + RETURN_AT, arch::RETURN_CODE);
        let entries = [code + RETURN_AT, super::calls::inner_entry().address()];
        let image = rt::pdx::own_image().map_or(0, |(base, _)| base);
        for (index, word) in [CLIST_MAGIC, CLIST_VERSION, random.below(2) * CLIST_SORTED, 8]
            .into_iter()
            .enumerate()
        {
            arch::store(clist + 8 * index as u64, word);
        }
        let image_password = call::obj_passwd(image, 0, Rights::RWX.bits().into())?;
        // Should it be kept, the case must be able to delete it.
        call::obj_passwd(image, PASSWORD, Rights::OWNER.bits().into())?;
        let pdx_password = arch::obj_cre_pdx(code, 0, clist, &entries[..1])?;
        let inner_password = arch::obj_cre_pdx(image, 0, clist, &entries[1..])?;
        let records = [
            (image, image_password),
            (image, inner_password),
            (code, PASSWORD),
            (code, pdx_password),
            (data, PASSWORD),
            (data, PASSWORD ^ 1),
            (random.word(), random.word()),
            (buffer, PASSWORD),
        ];
        for (index, (address, password)) in records.into_iter().enumerate() {
            arch::store(clist + 32 + 16 * index as u64, address);
            arch::store(clist + 40 + 16 * index as u64, password);
        }
        // Whether the Clist is in order is a matter of luck, as it should be.
        call::apd_insert(0, clist)?;
        let me = call::thread_my_id();
        let mut made = [data; MADE];
        made[1] = code;
        let threads = [me, 0, u64::MAX, me + (1 << 16)];
        let this = Self {
            data,
            code,
            clist,
            buffer,
            progress,
            kept,
            image,
            pdx_password,
            threads,
            made,
            values: [0; 4],
            next: 0,
        };
        this.fill_buffer(&mut random);
        Ok(this)
    }

    /// Fills the buffer: words of the pool, and an APD description that may be good.
    pub fn fill_buffer(&self, random: &mut Random) {
        for index in 0..DESCRIPTION_AT / 8 {
            arch::store(self.buffer + 8 * index, self.word(random));
        }
        arch::store(self.buffer + DESCRIPTION_AT, random.below(3));
        arch::store(self.buffer + DESCRIPTION_AT + 8, random.below(2));
        for slot in 0..16 {
            let address = if random.one_in(3) {
                self.word(random)
            } else {
                self.clist
            };
            arch::store(self.buffer + DESCRIPTION_AT + 16 + 8 * slot, address);
        }
    }

    /// The place of an APD description that may be good.
    pub const fn description(&self) -> u64 {
        self.buffer + DESCRIPTION_AT
    }

    /// Notes an object that a call made.
    pub fn note_object(&mut self, base: u64) {
        self.next = (self.next + 1) % MADE;
        self.made[self.next] = base;
    }

    /// Notes a thread that a call made.
    pub fn note_thread(&mut self, thread: u64) {
        self.threads.rotate_right(1);
        self.threads[0] = thread;
    }

    /// A word of any kind.
    pub fn word(&self, random: &mut Random) -> u64 {
        match random.below(100) {
            0..45 => self.address(random),
            45..65 => small(random),
            65..75 => size(random),
            75..80 => self.threads[random.below(4) as usize],
            80..85 => self.password(random),
            85..88 => self.values[random.below(4) as usize],
            88..92 => boundary(random),
            92..96 => 1 << random.below(64),
            _ => random.word(),
        }
    }

    /// An address: mostly of something that is there.
    pub fn address(&self, random: &mut Random) -> u64 {
        let base = match random.below(1000) {
            0..300 => self.made[random.below(MADE as u64) as usize],
            300..450 => self.data,
            450..550 => self.clist,
            550..700 => self.buffer,
            700..760 => self.code,
            760..790 if self.kept != 0 => self.kept,
            790..796 => self.progress,
            796..800 => self.image,
            800..803 => stack(),
            803..850 => return boundary(random),
            850..880 => random.below(1 << 47) & !(PAGE - 1),
            880..920 => return random.word(),
            920..960 => return self.description(),
            _ => return self.code + RETURN_AT,
        };
        base.wrapping_add(offset(random))
    }

    /// A page-aligned address, often.
    pub fn page(&self, random: &mut Random) -> u64 {
        let address = self.address(random);
        if random.one_in(8) {
            address
        } else {
            address & !(PAGE - 1)
        }
    }

    /// A password, good or bad.
    pub fn password(&self, random: &mut Random) -> u64 {
        match random.below(6) {
            0 => 0,
            1 => PASSWORD,
            2 => self.pdx_password,
            3 => PASSWORD ^ 1 << random.below(64),
            4 => 1 + random.below(4),
            _ => random.word(),
        }
    }
}

/// Somewhere on the calling thread's stack.
fn stack() -> u64 {
    let here = core::hint::black_box(0_u64);
    &raw const here as u64 & !(PAGE - 1)
}

fn offset(random: &mut Random) -> u64 {
    match random.below(12) {
        0..5 => 0,
        5 => 8,
        6 => PAGE,
        7 => PAGE - 8,
        8 => 1 + random.below(PAGE),
        9 => random.below(SLOT + 2 * PAGE),
        10 => SLOT,
        _ => 0_u64.wrapping_sub(8 << random.below(12)),
    }
}

/// A word at an edge of something.
pub fn boundary(random: &mut Random) -> u64 {
    const EDGES: &[u64] = &[
        0,
        1,
        PAGE,
        USER_START,
        ROOT_CLIST,
        ROOT_DIRECTORY,
        FIRST_PROGRAM,
        STACKS_START,
        STACKS_START + STACK_BYTES,
        USER_END,
        1 << 47,
        0xffff_8000_0000_0000,
        0xffff_ffff_8000_0000,
        0xffff_ffff_8010_0000,
        1 << 32,
        1 << 63,
        u64::MAX,
    ];
    let edge = random.pick(EDGES).unwrap_or_default();
    match random.below(6) {
        0 => edge.wrapping_sub(1),
        1 => edge.wrapping_add(1),
        2 => edge.wrapping_sub(PAGE),
        3 => edge.wrapping_add(PAGE),
        _ => edge,
    }
}

/// A small number.
pub fn small(random: &mut Random) -> u64 {
    let most = [2, 4, 8, 20, 40, 200, 5000];
    let most = random.pick(&most).unwrap_or(2);
    random.below(most)
}

/// A size in bytes.
pub fn size(random: &mut Random) -> u64 {
    match random.below(16) {
        0 => 0,
        1 => 1,
        2..8 => PAGE * (1 + random.below(8)),
        8 => SLOT + PAGE - random.below(3),
        9 => PAGE * random.below(2000),
        10 => 1 << random.below(64),
        11 => (1 << random.below(64)) - 1,
        12 => u64::MAX - random.below(2 * PAGE),
        13 => random.below(1 << 47),
        _ => 1 + random.below(3 * PAGE),
    }
}

/// A time in nanoseconds: mostly short, or nobody would get anywhere.
pub fn time(random: &mut Random) -> u64 {
    match random.below(400) {
        0 => u64::MAX,
        1 => u64::MAX - 1,
        2 => random.word(),
        3..100 => 1 + random.below(20_000),
        100..103 => 1_000_000,
        _ => 0,
    }
}
