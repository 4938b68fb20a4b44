//! A driver for a PCI card: its line asks for as long as the card wants something, or it interrupts by message.
//!
//! The card is a network card whose interrupts can be raised by writing a register; nothing else of it is used. Its driver
//! has the card's registers in a space of its own and does not know which kind of interrupt it lives on.

use abi::{
    Rights,
    nucleus::{ANYONE, INTERRUPT_FIRST_MESSAGE, INTERRUPTS, LABEL_INTERRUPT, MAP, fpage, tag},
};
use drivers::{
    dma::{Page, Window},
    msix::{self, Message},
    pci::{Function, MemoryBar, Pci},
    world::{Mmio, World as Devices},
};
use nucleus::{call, message};

use crate::{
    arch::{AllPorts, registers},
    case::{Case, Failure, Outcome, Setting, case, ensure, ensure_eq, ensure_error},
    world::World,
};

/// The cases.
pub const CASES: &[Case] = &[
    case("examples/card-by-line", by_line),
    case("examples/card-by-message", by_message),
];

// begin: card
/// Where the driver has the card's registers.
const REGISTERS: u64 = 0x1000_0000_0000;
/// Causes that wait; writing takes them back.
const CAUSES: usize = 0xc0;
/// Raises causes.
const RAISE: usize = 0xc8;
/// A request: causes to be raised, and how many interrupts to do nothing about first. The answer: what had waited,
/// and which interrupt told of it.
const LABEL_RAISE: u64 = 100;

nucleus::thread_entry!(driver_entry, driver);
/// The driver of a card with that many bytes of registers.
fn driver(bytes: u64) {
    let card = registers(REGISTERS, bytes as usize);
    let (mut client, mut lazy) = (0, 0);
    let mut next = message::receive();
    while let Ok(got) = next {
        let is_interrupt = got.label() == LABEL_INTERRUPT && got.sender <= INTERRUPTS;
        if is_interrupt && lazy == 0 {
            let causes = card.read_u32(CAUSES);
            card.write_u32(CAUSES, causes);
            // Cards limit how often they interrupt, and may be late: what they tell of is gone by then.
            if causes != 0 {
                next = message::reply_and_wait(client, tag(0, 2, 0), [causes.into(), got.sender - 1, 0, 0]);
                continue;
            }
        } else if is_interrupt {
            // The card still wants something: its line asks again when this receives.
            lazy -= 1;
        } else if got.label() == LABEL_RAISE {
            (client, lazy) = (got.sender, got.words[1]);
            card.write_u32(RAISE, got.words[0] as u32);
        }
        next = message::receive();
    }
}
// end: card

/// The card's maker and kind.
const CARD: (u16, u16) = (0x8086, 0x10d3);
/// Lets causes interrupt.
const LET_IN: usize = 0xd0;
/// Keeps causes from interrupting.
const KEEP_OUT: usize = 0xd8;
/// By which entry of its table the card tells of a cause.
const ENTRIES: usize = 0xe4;
/// Causes: a link that changed, and something else than packets.
const LINK: u32 = 1 << 2;
const OTHER: u32 = 1 << 24;
/// The other causes go by entry 0.
const OTHER_BY_0: u32 = 8 << 16;
/// PCI's command register, and the bit that keeps the card from using its line.
const COMMAND: u8 = 4;
const NO_LINE: u16 = 1 << 10;
/// After that time the card may interrupt again: it counts at least 128 microseconds.
const SETTLED_US: u32 = 1000;
/// The first line that asks for as long as a device wants something.
const FIRST_LEVEL: u64 = 16;

/// The card, and its driver in a space of its own.
struct Card {
    pci: Pci<AllPorts>,
    function: Function,
    registers: Window,
    world: World,
    driver: u64,
}

impl Card {
    fn new(setting: &Setting) -> Outcome<Self> {
        let pci = Pci::new(AllPorts);
        let Some(function) = pci.find(CARD.0, CARD.1).next() else {
            return Err(Failure::new(format_args!("the machine has no such card")));
        };
        let bar = pci.memory_bar(function.address, 0);
        let MemoryBar { address, bytes } =
            bar.map_err(|error| Failure::new(format_args!("no registers: {error:?}")))?;
        pci.enable(function.address);
        let registers = registers(address, bytes as usize);
        let mut world = World::new(setting, 0, 0)?;
        let size = bytes.ilog2() as u8;
        let window = fpage(REGISTERS, size, Rights::RW);
        call::map(fpage(address, size, Rights::RW), world.space, window, MAP)?;
        let driver = world.start(driver_entry(), bytes)?;
        Ok(Self {
            pci,
            function,
            registers,
            world,
            driver,
        })
    }

    /// Raises a cause and has the driver do nothing about that many interrupts first; gives which interrupt it was.
    fn raise(&self, cause: u32, lazy: u64) -> Outcome<u64> {
        let got = message::call(self.driver, tag(LABEL_RAISE, 2, 0), [u64::from(cause), lazy, 0, 0])?;
        ensure!(got.words[0] & u64::from(cause) != 0, "causes are {:#x}", got.words[0]);
        ensure_eq!(self.registers.read_u32(CAUSES), 0);
        Ok(got.words[1])
    }

    fn end(self) -> Outcome {
        self.registers.write_u32(KEEP_OUT, u32::MAX);
        // The card counts the time to its next interrupt. QEMU 7.2 ends if messages are turned on before that time is over. Its clock serves the
        // earlier of two times first, so that of the card is over when this thread wakes.
        ensure_error!(message::receive_within(ANYONE, SETTLED_US), TimedOut);
        self.pci.enable(self.function.address);
        self.world.end()
    }
}

fn by_line(setting: &Setting) -> Outcome {
    let card = Card::new(setting)?;
    let command = card.pci.read_u16(card.function.address, COMMAND);
    card.pci.write_u16(card.function.address, COMMAND, command & !NO_LINE);
    // Which line the board gives to the card is known when it has been used.
    for line in FIRST_LEVEL..INTERRUPT_FIRST_MESSAGE {
        call::interrupt_bind(line, card.driver)?;
    }
    card.registers.write_u32(LET_IN, LINK);
    let line = card.raise(LINK, 0)?;
    ensure!(
        (FIRST_LEVEL..INTERRUPT_FIRST_MESSAGE).contains(&line),
        "it was line {line}"
    );
    for lazy in [1, 0, 5, 2] {
        ensure_eq!(card.raise(LINK, lazy)?, line);
    }
    for line in FIRST_LEVEL..INTERRUPT_FIRST_MESSAGE {
        call::interrupt_bind(line, 0)?;
    }
    card.end()
}

/// The card's table lies in registers, too.
struct Tables;

impl Devices for Tables {
    type Window = Window;
    type Page = Page;

    fn map_registers(&mut self, physical: u64, bytes: usize) -> Option<Window> {
        Some(registers(physical, bytes))
    }

    fn allocate_page(&mut self) -> Option<Page> {
        None
    }
}

fn by_message(setting: &Setting) -> Outcome {
    let card = Card::new(setting)?;
    card.registers.write_u32(ENTRIES, OTHER_BY_0);
    card.registers.write_u32(LET_IN, OTHER | LINK);
    // Each of these interrupts in turn; a message comes once, so the driver is never lazy.
    for interrupt in [INTERRUPT_FIRST_MESSAGE, INTERRUPTS - 1] {
        call::interrupt_bind(interrupt, card.driver)?;
        let (address, data) = call::interrupt_message(interrupt)?;
        let message = Message {
            address,
            data: data as u32,
        };
        let enabled = msix::enable(&card.pci, card.function.address, &mut Tables, message);
        enabled.map_err(|error| Failure::new(format_args!("no messages: {error:?}")))?;
        for _ in 0..3 {
            ensure_eq!(card.raise(LINK, 0)?, interrupt);
        }
        call::interrupt_bind(interrupt, 0)?;
    }
    card.end()
}
