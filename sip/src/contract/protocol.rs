//! A contract as the runtime steps it: one table look-up at each send and each receive.
//!
//! Each end of a channel has a state of its own, which goes on with what this end sends and with what
//! it receives. So a side that owes a receive cannot send, even if the other side's message already
//! waits; between two receives it can send no more messages than the longest run of the contract.
//! That bounds the queues, and needs no word that both sides write.

use super::{Contract, Direction, END, Field, Message, Side};
use crate::module::{FuncType, ValType};
use alloc::{format, string::String, sync::Arc, vec::Vec};

/// In the table: this message may not be said in this state.
const NEVER: u16 = u16::MAX - 1;

/// A contract, its key, and the table of its steps.
#[derive(Debug)]
pub struct Protocol {
    contract: Contract,
    key: u64,
    /// By state, then message: the state after it.
    next: Vec<u16>,
}

/// The operation of an import from a contract's module. All take an endpoint first where they take any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A message: takes its fields, returns 0, or 1 if the peer is gone. Its handles are the
    /// sender's no more in both cases.
    Send(u16),
    /// `receive`: the number of the message that arrived, or −1 if the peer is gone.
    Receive,
    /// `message.field`: a field of the message that arrived last.
    Field(u16, u16),
    /// `start`: the endpoint that the process was started with, at the first call; then 0.
    Start,
    /// `open`: a new channel; the client's end in the low half, the server's in the high half; 0 if
    /// there are as many as there may be.
    Open,
}

/// Why an import from a contract's module cannot be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// The contract has no such message, field or operation.
    Unknown(String),
    /// The message is one that this side never sends.
    NeverSent(String, Side),
    /// The message is one that this side never receives.
    NeverReceived(String, Side),
    /// The import has another type than the contract says.
    Type(String, FuncType, FuncType),
}

impl core::fmt::Display for ImportError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "the contract has no message, field or operation '{name}'"),
            Self::NeverSent(name, side) => write!(f, "'{name}' is a message that the {} never sends", side.name()),
            Self::NeverReceived(name, side) => {
                write!(f, "'{name}' is of a message that the {} never receives", side.name())
            }
            Self::Type(name, want, have) => write!(
                f,
                "'{name}' is imported as {:?} -> {:?}; the contract says {:?} -> {:?}",
                have.params, have.results, want.params, want.results
            ),
        }
    }
}

impl Protocol {
    /// The table of a checked contract.
    pub fn new(contract: Contract) -> Arc<Self> {
        let count = contract.messages.len();
        let mut next = alloc::vec![NEVER; contract.states.len() * count];
        for (at, state) in contract.states.iter().enumerate() {
            for arm in &state.arms {
                next[at * count + usize::from(arm.message)] = arm.next;
            }
        }
        Arc::new(Self {
            key: contract.key(),
            contract,
            next,
        })
    }

    /// The contract.
    pub const fn contract(&self) -> &Contract {
        &self.contract
    }

    /// The key that tells contracts apart: the number in the name of its module.
    pub const fn key(&self) -> u64 {
        self.key
    }

    /// The side whose turn it is, seen from a side; `None` after the end.
    pub fn turn(&self, side: Side, state: u16) -> Option<Direction> {
        let state = self.contract.states.get(usize::from(state))?;
        Some(side.turn(state.direction))
    }

    /// The state after a message that a side sends or receives in a state; `None` if it may not.
    pub fn step(&self, side: Side, state: u16, direction: Direction, message: u16) -> Option<u16> {
        if self.turn(side, state)? != direction || usize::from(message) >= self.contract.messages.len() {
            return None;
        }
        let at = usize::from(state) * self.contract.messages.len() + usize::from(message);
        Some(self.next[at]).filter(|next| *next != NEVER)
    }

    /// By state, the state after this message, if this side may send (or receive) it there.
    pub fn row(&self, side: Side, direction: Direction, message: u16) -> Vec<Option<u16>> {
        let states = 0..self.contract.states.len() as u16;
        states.map(|state| self.step(side, state, direction, message)).collect()
    }

    /// The error, for the user, of a process that sends or receives now.
    pub fn complaint(&self, side: Side, state: u16, direction: Direction, message: Option<u16>) -> String {
        let what = match (direction, message.and_then(|at| self.message(at))) {
            (Direction::Send, Some(message)) => format!("sends {}", message.name),
            _ => String::from("receives"),
        };
        let now = if state == END {
            String::from("the conversation is over")
        } else {
            let state = &self.contract.states[usize::from(state)];
            let may: Vec<&str> = state
                .arms
                .iter()
                .map(|arm| self.contract.messages[usize::from(arm.message)].name.as_str())
                .collect();
            let turn = match side.turn(state.direction) {
                Direction::Send => "may send",
                Direction::Receive => "has to receive",
            };
            format!("in state {} it {turn} {}", state.name, may.join(" or "))
        };
        format!("the {} of {} {what}, but {now}", side.name(), self.contract.name)
    }

    /// A message by number.
    pub fn message(&self, at: u16) -> Option<&Message> {
        self.contract.messages.get(usize::from(at))
    }

    /// The import of this name in this side's module.
    ///
    /// # Errors
    /// An [`ImportError`]: no such thing, not this side's to say, or another type.
    pub fn operation(&self, side: Side, name: &str, ty: &FuncType) -> Result<Operation, ImportError> {
        let unknown = || ImportError::Unknown(name.into());
        let number = |name: &str| self.contract.messages.iter().position(|message| message.name == name);
        let operation = match name {
            "receive" => Operation::Receive,
            "start" => Operation::Start,
            "open" => Operation::Open,
            _ => {
                if let Some((message, field)) = name.split_once('.') {
                    let at = number(message).ok_or_else(unknown)?;
                    if !self.contract.sends(side.other(), at) {
                        return Err(ImportError::NeverReceived(name.into(), side));
                    }
                    let fields = &self.contract.messages[at].fields;
                    let field = fields.iter().position(|(have, _)| have == field).ok_or_else(unknown)?;
                    Operation::Field(at as u16, field as u16)
                } else {
                    let at = number(name).ok_or_else(unknown)?;
                    if !self.contract.sends(side, at) {
                        return Err(ImportError::NeverSent(name.into(), side));
                    }
                    Operation::Send(at as u16)
                }
            }
        };
        let want = self.operation_type(operation);
        if want == *ty {
            Ok(operation)
        } else {
            Err(ImportError::Type(name.into(), want, ty.clone()))
        }
    }

    /// The type of an operation's import.
    pub fn operation_type(&self, operation: Operation) -> FuncType {
        let (params, results) = match operation {
            Operation::Send(message) => return self.contract.send_type(usize::from(message)),
            Operation::Receive => (alloc::vec![ValType::I32], alloc::vec![ValType::I32]),
            Operation::Field(message, field) => {
                let (_, field) = self.contract.messages[usize::from(message)].fields[usize::from(field)];
                (alloc::vec![ValType::I32], alloc::vec![field.val_type()])
            }
            Operation::Start => (Vec::new(), alloc::vec![ValType::I32]),
            Operation::Open => (Vec::new(), alloc::vec![ValType::I64]),
        };
        FuncType { params, results }
    }

    /// Which fields of a message are blocks, and which are endpoints: a bit each.
    pub fn owned_fields(&self, message: u16) -> (u16, u16) {
        let (mut blocks, mut ends) = (0, 0);
        for (at, (_, field)) in self.contract.messages[usize::from(message)].fields.iter().enumerate() {
            match field {
                Field::Block(_) => blocks |= 1 << at,
                Field::Endpoint => ends |= 1 << at,
                Field::Scalar(_) => {}
            }
        }
        (blocks, ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: &str = "contract Store
        message get(key: i64)   # a question
        message value(data: block, size: i32)
        message missing()
        message stop()
        state Ready { ! get -> Waiting | ! stop -> end }
        state Waiting { ? value -> Ready | ? missing -> Ready }";

    #[test]
    fn a_conversation() {
        use Direction::{Receive, Send};
        let protocol = Protocol::new(Contract::parse(STORE).expect("good"));
        let step = |side, state, direction, message| protocol.step(side, state, direction, message);
        assert_eq!(step(Side::Server, 0, Send, 1), None);
        assert_eq!(step(Side::Client, 0, Send, 1), None);
        assert_eq!(step(Side::Client, 0, Receive, 0), None);
        assert_eq!(step(Side::Client, 0, Send, 0), Some(1));
        assert_eq!(step(Side::Client, 1, Send, 0), None);
        assert_eq!(step(Side::Server, 0, Receive, 0), Some(1));
        assert_eq!(step(Side::Server, 1, Send, 2), Some(0));
        assert_eq!(step(Side::Client, 1, Receive, 2), Some(0));
        assert_eq!(step(Side::Client, 0, Send, 3), Some(END));
        assert_eq!(step(Side::Client, END, Send, 3), None);
        assert_eq!(step(Side::Client, 0, Send, 77), None);
        assert_eq!(
            protocol.complaint(Side::Client, 1, Send, Some(0)),
            "the client of Store sends get, but in state Waiting it has to receive value or missing"
        );
    }

    #[test]
    fn imports_are_checked() {
        use ValType::{I32, I64};

        let protocol = Protocol::new(Contract::parse(STORE).expect("good"));
        let ty = |params: &[ValType], results: &[ValType]| FuncType {
            params: params.into(),
            results: results.into(),
        };
        let get = ty(&[I32, I64], &[I32]);
        assert_eq!(protocol.operation(Side::Client, "get", &get), Ok(Operation::Send(0)));
        let refused = |side, name, ty: &FuncType| protocol.operation(side, name, ty).map_err(|error| error.to_string());
        assert_eq!(
            refused(Side::Server, "get", &get),
            Err("'get' is a message that the server never sends".into())
        );
        assert_eq!(
            refused(Side::Server, "value.data", &ty(&[I32], &[I32])),
            Err("'value.data' is of a message that the server never receives".into())
        );
        assert_eq!(
            refused(Side::Client, "value.data", &ty(&[I32], &[I64])),
            Err("'value.data' is imported as [I32] -> [I64]; the contract says [I32] -> [I32]".into())
        );
        assert_eq!(
            refused(Side::Client, "value.date", &get),
            Err("the contract has no message, field or operation 'value.date'".into())
        );
        assert_eq!(
            refused(Side::Client, "value.size", &ty(&[I32], &[I32])),
            Ok(Operation::Field(1, 1))
        );
        assert_eq!(protocol.owned_fields(1), (1, 0));
    }
}
