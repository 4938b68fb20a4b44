//! Contracts: what may be said over a channel, and in which order.
//!
//! ```text
//! contract Store
//! message get(key: i64)
//! message value(data: block)
//! message missing()
//! message stop()
//! state Ready { ! get -> Waiting | ! stop -> end }
//! state Waiting { ? value -> Ready | ? missing -> Ready }
//! ```
//!
//! A field is a scalar, an `endpoint`, or a `block`, which may say what it holds: `block of f64`.
//! A contract is written from one endpoint's side, the importing one: `!` sends, `?` receives; the
//! other endpoint has the same table with the directions exchanged. A state's arms are a choice; in
//! one state all go the same way, so that both sides always know whose turn it is. The first state
//! is the start, `end` the only final one. A cycle on which one side only sends is refused: between
//! two turns of the other a side can send at most as many messages as there are states, which bounds
//! the queues ([`Contract::queue`]), so that sends neither block nor allocate. [`Protocol`] steps the
//! states, and says what a process may import.
//!
//! The text compiles to a table; the table's hash stands in the name of the module from which a
//! process imports the messages, so that both ends are known to mean the same contract.

mod protocol;
pub use protocol::{ImportError, Operation, Protocol};

use crate::limits::QUEUE_MESSAGES;
use crate::module::{FuncType, ValType};
use alloc::{format, string::String, vec::Vec};

/// Names of the operations that stand beside the messages in a contract's module.
pub const OPERATIONS: [&str; 3] = ["receive", "start", "open"];
/// Bytes of a name at most.
const NAME_BYTES: usize = 64;
/// Messages and states of a contract at most.
pub const CONTRACT_ITEMS: usize = 256;
/// Parameters of a message at most.
pub const MESSAGE_FIELDS: usize = crate::exchange::channels::WORDS;
/// Number of the final state.
pub const END: u16 = u16::MAX;

/// The content of a block, for the bindings and the hash; to the runtime it is bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Element {
    /// Bytes.
    #[default]
    Byte,
    /// Scalars of this type.
    Scalar(ValType),
}

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// A scalar of this type.
    Scalar(ValType),
    /// A block of the exchange heap, whose ownership goes with the message; what it holds.
    Block(Element),
    /// An endpoint of another channel, whose ownership goes with the message.
    Endpoint,
}

impl Field {
    /// The type as which a process passes it.
    pub const fn val_type(self) -> ValType {
        match self {
            Self::Scalar(ty) => ty,
            Self::Block(_) | Self::Endpoint => ValType::I32,
        }
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its name.
    pub name: String,
    /// The fields it carries: names and kinds.
    pub fields: Vec<(String, Field)>,
}

/// The side that says a message, seen from an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// This endpoint.
    Send,
    /// The other.
    Receive,
}

/// One arm of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Index of the message.
    pub message: u16,
    /// The state after it.
    pub next: u16,
}

/// A state: whose turn it is and what may be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its name.
    pub name: String,
    /// The side whose turn it is.
    pub direction: Direction,
    /// The messages that may be said.
    pub arms: Vec<Arm>,
}

/// A checked contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// Its name.
    pub name: String,
    /// Its messages.
    pub messages: Vec<Message>,
    /// Its states; the first is the start.
    pub states: Vec<State>,
}

/// Why a contract was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContractError {
    /// Something else stands where this was expected.
    Syntax {
        /// Line, from 1.
        line: usize,
        /// The text that was expected.
        expected: &'static str,
    },
    /// A name that is not defined.
    Unknown(String),
    /// A name that is defined twice.
    Twice(String),
    /// A state both sends and receives.
    MixedState(String),
    /// A cycle of states in which nothing is received, or nothing sent.
    UnboundedCycle(String),
    /// A run of sends without a receive that is longer than a queue.
    LongRun(String),
    /// A message with the name of an operation.
    Reserved(String),
    /// Over a limit.
    TooLarge,
    /// There is no state.
    Empty,
}

impl core::fmt::Display for ContractError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Syntax { line, expected } => write!(f, "line {line}: expected {expected}"),
            Self::Unknown(name) => write!(f, "'{name}' is not defined"),
            Self::Twice(name) => write!(f, "'{name}' is defined twice, or said twice in one state"),
            Self::MixedState(name) => write!(f, "state {name} both sends and receives"),
            Self::UnboundedCycle(name) => write!(
                f,
                "from state {name} one side can send for ever without hearing the other"
            ),
            Self::LongRun(name) => write!(
                f,
                "from state {name} one side can send more than {QUEUE_MESSAGES} messages without hearing the other"
            ),
            Self::Reserved(name) => write!(f, "'{name}' is the name of an operation; give the message another name"),
            Self::TooLarge => f.write_str("more messages, states or fields than a contract may have"),
            Self::Empty => f.write_str("the contract has no state"),
        }
    }
}

struct Reader<'a> {
    tokens: Vec<(usize, &'a str)>,
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        let mut tokens = Vec::new();
        for (line, text) in text.lines().enumerate() {
            let mut rest = text.split('#').next().unwrap_or("").trim_start();
            while let Some(first) = rest.chars().next() {
                let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let length = match first {
                    c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
                    '-' if rest.starts_with("->") => 2,
                    c => c.len_utf8(),
                };
                tokens.push((line + 1, &rest[..length]));
                rest = rest[length..].trim_start();
            }
        }
        Self { tokens, at: 0 }
    }
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).map(|token| token.1)
    }
    fn error(&self, expected: &'static str) -> ContractError {
        let line = self
            .tokens
            .get(self.at)
            .or(self.tokens.last())
            .map_or(1, |token| token.0);
        ContractError::Syntax { line, expected }
    }
    fn take(&mut self, expected: &'static str) -> Result<(), ContractError> {
        if self.peek() != Some(expected) {
            return Err(self.error(expected));
        }
        self.at += 1;
        Ok(())
    }
    fn took(&mut self, token: &str) -> bool {
        let there = self.peek() == Some(token);
        self.at += usize::from(there);
        there
    }
    fn name(&mut self) -> Result<&'a str, ContractError> {
        let good = |name: &&str| name.len() <= NAME_BYTES && name.starts_with(|c: char| c.is_ascii_alphabetic());
        let name = self.peek().filter(good);
        let name = name.ok_or_else(|| self.error("a name of at most 64 letters, digits and '_'"))?;
        self.at += 1;
        Ok(name)
    }
}

impl Contract {
    /// Reads and checks a contract.
    ///
    /// # Errors
    /// A [`ContractError`] that names the line or the item.
    pub fn parse(text: &str) -> Result<Self, ContractError> {
        let mut reader = Reader::new(text);
        reader.take("contract")?;
        let mut contract = Self {
            name: reader.name()?.into(),
            messages: Vec::new(),
            states: Vec::new(),
        };
        let mut arms: Vec<Vec<(Direction, &str, &str)>> = Vec::new();
        while reader.peek().is_some() {
            if contract.messages.len() + contract.states.len() > CONTRACT_ITEMS {
                return Err(ContractError::TooLarge);
            }
            if reader.took("message") {
                let message = Self::message(&mut reader)?;
                if OPERATIONS.contains(&message.name.as_str()) {
                    return Err(ContractError::Reserved(message.name));
                }
                if contract.messages.iter().any(|have| have.name == message.name) {
                    return Err(ContractError::Twice(message.name));
                }
                contract.messages.push(message);
            } else {
                reader.take("state").map_err(|_| reader.error("'message' or 'state'"))?;
                let name = reader.name()?;
                if name == "end" || contract.states.iter().any(|have| have.name == name) {
                    return Err(ContractError::Twice(name.into()));
                }
                arms.push(Self::choice(&mut reader)?);
                let direction = arms
                    .last()
                    .and_then(|arms| arms.first())
                    .map_or(Direction::Send, |arm| arm.0);
                contract.states.push(State {
                    name: name.into(),
                    direction,
                    arms: Vec::new(),
                });
            }
        }
        contract.resolve(&arms)?;
        contract.check_cycles()?;
        Ok(contract)
    }

    fn message(reader: &mut Reader<'_>) -> Result<Message, ContractError> {
        let name = reader.name()?.into();
        let mut fields = Vec::new();
        reader.take("(")?;
        while !reader.took(")") {
            if !fields.is_empty() {
                reader.take(",")?;
            }
            let field = reader.name()?;
            reader.take(":")?;
            let scalar = |name: &str| match name {
                "i32" => Some(ValType::I32),
                "i64" => Some(ValType::I64),
                "f32" => Some(ValType::F32),
                "f64" => Some(ValType::F64),
                _ => None,
            };
            let unknown = |name: &str| ContractError::Unknown(name.into());
            let kind = match reader.name()? {
                "endpoint" => Field::Endpoint,
                "block" if reader.took("of") => match reader.name()? {
                    "byte" => Field::Block(Element::Byte),
                    name => Field::Block(Element::Scalar(scalar(name).ok_or_else(|| unknown(name))?)),
                },
                "block" => Field::Block(Element::Byte),
                name => Field::Scalar(scalar(name).ok_or_else(|| unknown(name))?),
            };
            fields.push((field.into(), kind));
        }
        if fields.len() > MESSAGE_FIELDS {
            return Err(ContractError::TooLarge);
        }
        Ok(Message { name, fields })
    }

    fn choice<'a>(reader: &mut Reader<'a>) -> Result<Vec<(Direction, &'a str, &'a str)>, ContractError> {
        let mut arms = Vec::new();
        reader.take("{")?;
        loop {
            let direction = match (reader.took("!"), reader.took("?")) {
                (true, _) => Direction::Send,
                (_, true) => Direction::Receive,
                _ => return Err(reader.error("'!' or '?'")),
            };
            let message = reader.name()?;
            reader.take("->")?;
            arms.push((direction, message, reader.name()?));
            if arms.len() > CONTRACT_ITEMS {
                return Err(ContractError::TooLarge);
            }
            if reader.took("}") {
                return Ok(arms);
            }
            reader.take("|")?;
        }
    }

    fn resolve(&mut self, arms: &[Vec<(Direction, &str, &str)>]) -> Result<(), ContractError> {
        for (at, arms) in arms.iter().enumerate() {
            for (direction, message, next) in arms {
                if *direction != self.states[at].direction {
                    return Err(ContractError::MixedState(self.states[at].name.clone()));
                }
                let unknown = |name: &str| ContractError::Unknown(name.into());
                let number = self
                    .messages
                    .iter()
                    .position(|have| have.name == *message)
                    .ok_or_else(|| unknown(message))?;
                let next = match *next {
                    "end" => END,
                    next => self
                        .states
                        .iter()
                        .position(|have| have.name == next)
                        .ok_or_else(|| unknown(next))? as u16,
                };
                if self.states[at]
                    .arms
                    .iter()
                    .any(|arm| usize::from(arm.message) == number)
                {
                    return Err(ContractError::Twice((*message).into()));
                }
                self.states[at].arms.push(Arm {
                    message: number as u16,
                    next,
                });
            }
        }
        if self.states.is_empty() {
            Err(ContractError::Empty)
        } else {
            Ok(())
        }
    }

    /// Refuses cycles among states of one direction. Each pass removes the states that lead to no
    /// other of their direction; what remains after as many passes as states lies on a cycle.
    fn check_cycles(&self) -> Result<(), ContractError> {
        let mut open = alloc::vec![true; self.states.len()];
        for _ in 0..self.states.len() {
            for (at, state) in self.states.iter().enumerate() {
                open[at] = open[at]
                    && state.arms.iter().any(|arm| {
                        let next = usize::from(arm.next);
                        arm.next != END && open[next] && self.states[next].direction == state.direction
                    });
            }
        }
        match open.iter().position(|open| *open) {
            Some(at) => Err(ContractError::UnboundedCycle(self.states[at].name.clone())),
            None => Ok(()),
        }?;
        let runs = self.runs();
        match runs.iter().position(|run| *run > QUEUE_MESSAGES) {
            Some(at) => Err(ContractError::LongRun(self.states[at].name.clone())),
            None => Ok(()),
        }
    }

    /// Messages that can be under way in one direction at most.
    pub fn queue(&self) -> usize {
        self.runs().into_iter().max().unwrap_or(1)
    }

    /// For each state the messages that its side can send from there without hearing the other.
    fn runs(&self) -> Vec<usize> {
        // A run of states of one direction has no cycle, so it is no longer than there are states.
        let mut longest = alloc::vec![1usize; self.states.len()];
        for _ in 0..self.states.len() {
            for (at, state) in self.states.iter().enumerate() {
                for arm in state.arms.iter().filter(|arm| arm.next != END) {
                    let next = usize::from(arm.next);
                    if self.states[next].direction == state.direction {
                        longest[at] = longest[at].max(1 + longest[next]);
                    }
                }
            }
        }
        longest
    }

    /// The table as bytes, which is what both ends must have alike.
    pub fn table(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let name = |bytes: &mut Vec<u8>, name: &str| {
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
        };
        name(&mut bytes, &self.name);
        bytes.push(self.messages.len() as u8);
        for message in &self.messages {
            name(&mut bytes, &message.name);
            bytes.push(message.fields.len() as u8);
            bytes.extend(message.fields.iter().map(|(_, field)| match field {
                Field::Scalar(ty) => *ty as u8,
                Field::Block(Element::Byte) => 0x10,
                Field::Block(Element::Scalar(ty)) => 0x20 | *ty as u8,
                Field::Endpoint => 0x11,
            }));
        }
        bytes.push(self.states.len() as u8);
        for state in &self.states {
            bytes.push(u8::from(state.direction == Direction::Receive));
            bytes.push(state.arms.len() as u8);
            for arm in &state.arms {
                bytes.extend_from_slice(&arm.message.to_le_bytes());
                bytes.extend_from_slice(&arm.next.to_le_bytes());
            }
        }
        bytes
    }

    /// Name of the module from which a process imports this endpoint's messages: `client` is the side
    /// from which the contract is written.
    pub fn import_module(&self, side: Side) -> String {
        format!("gondwana:{}:{}:{:016x}", side.name(), self.name, self.key())
    }

    /// The first 64 bits of the table's hash.
    pub fn key(&self) -> u64 {
        let hash = blake3::hash(&self.table());
        let mut first = [0; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_be_bytes(first)
    }

    /// The type that an import of a message must have. A send takes the endpoint and the fields and
    /// returns 0, or 1 if the peer is gone; a received message's fields are fetched one by one.
    pub fn send_type(&self, message: usize) -> FuncType {
        let fields = self.messages[message].fields.iter().map(|(_, field)| field.val_type());
        let mut params = alloc::vec![ValType::I32];
        params.extend(fields);
        FuncType {
            params,
            results: alloc::vec![ValType::I32],
        }
    }

    /// Whether this side ever sends the message: what it never sends it cannot import.
    pub fn sends(&self, side: Side, message: usize) -> bool {
        self.states.iter().any(|state| {
            side.turn(state.direction) == Direction::Send
                && state.arms.iter().any(|arm| usize::from(arm.message) == message)
        })
    }
}

/// The two ends of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one from which the contract is written.
    Client,
    /// The other.
    Server,
}

impl Side {
    /// Its name, as in the names of modules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// The side and the contract's name and number in the name of a module.
    pub fn of_module(module: &str) -> Option<(Self, &str, u64)> {
        let mut parts = module.strip_prefix("gondwana:")?.split(':');
        let side = match parts.next()? {
            "client" => Self::Client,
            "server" => Self::Server,
            _ => return None,
        };
        let (name, key) = (parts.next()?, parts.next()?);
        let key = u64::from_str_radix(key, 16).ok().filter(|_| key.len() == 16)?;
        parts.next().is_none().then_some((side, name, key))
    }

    /// A state's direction seen from this side.
    pub fn turn(self, direction: Direction) -> Direction {
        match (self, direction) {
            (Self::Client, direction) => direction,
            (Self::Server, Direction::Send) => Direction::Receive,
            (Self::Server, Direction::Receive) => Direction::Send,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: &str = "contract Store
        message get(key: i64)   # a question
        message value(data: block)
        message missing()
        message stop()
        state Ready { ! get -> Waiting | ! stop -> end }
        state Waiting { ? value -> Ready | ? missing -> Ready }";

    #[test]
    fn queues_are_bounded() {
        let contract = Contract::parse(STORE).expect("good");
        assert_eq!(contract.queue(), 1);
        assert!(contract.sends(Side::Client, 0) && !contract.sends(Side::Server, 0));
        let run = |states: usize| {
            let mut text = String::from("contract Run message x()");
            for at in 0..states {
                let next = if at + 1 == states {
                    "end".into()
                } else {
                    format!("S{}", at + 1)
                };
                text = format!("{text} state S{at} {{ ! x -> {next} }}");
            }
            Contract::parse(&text)
        };
        assert_eq!(run(QUEUE_MESSAGES).map(|contract| contract.queue()), Ok(QUEUE_MESSAGES));
        assert_eq!(run(QUEUE_MESSAGES + 1), Err(ContractError::LongRun("S0".into())));
    }

    #[test]
    fn hashes_tell_contracts_apart() {
        let one = Contract::parse(STORE).expect("good");
        let other = Contract::parse(&STORE.replace("key: i64", "key: i32")).expect("good");
        assert_ne!(one.import_module(Side::Client), other.import_module(Side::Client));
        assert!(one.import_module(Side::Client).starts_with("gondwana:client:Store:"));
    }

    #[test]
    fn bad_contracts_are_refused() {
        let cases = [
            ("", "line 1: expected contract"),
            ("contract C state A { ! x -> A }", "'x' is not defined"),
            (
                "contract C message x() state A { ! x -> A }",
                "from state A one side can send for ever without hearing the other",
            ),
            (
                "contract C message x() state A { ? x -> A }",
                "from state A one side can send for ever without hearing the other",
            ),
            (
                "contract C message x() message y() state A { ! x -> A | ? y -> end }",
                "state A both sends and receives",
            ),
            (
                "contract C message x() message x() state A { ! x -> end }",
                "'x' is defined twice, or said twice in one state",
            ),
            (
                "contract C message x() state A { ! x -> end | ! x -> A }",
                "'x' is defined twice, or said twice in one state",
            ),
            (
                "contract C message x(a: string) state A { ! x -> end }",
                "'string' is not defined",
            ),
            ("contract C message x() state A { ! x -> B }", "'B' is not defined"),
            (
                "contract C message x(",
                "line 1: expected a name of at most 64 letters, digits and '_'",
            ),
            (
                "contract C message open() state A { ! open -> end }",
                "'open' is the name of an operation; give the message another name",
            ),
            ("contract C", "the contract has no state"),
            ("contract C\n\nfrob", "line 3: expected 'message' or 'state'"),
        ];
        for (text, message) in cases {
            assert_eq!(
                Contract::parse(text).map_err(|error| error.to_string()),
                Err(message.into()),
                "{text}"
            );
        }
    }
}
