//! The Rust module of a contract: each state of a conversation is a type whose methods are what may be
//! said in it, and which a send or receive consumes. A program that breaks the contract does not build.

use super::{camel, snake};
use sip::contract::{Arm, Contract, Direction, END, Element, Field, Message, Side, State};
use sip::module::ValType;
use std::fmt::Write;

const KEYWORDS: [&str; 40] = [
    "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "extern", "false", "fn",
    "for", "gen", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self",
    "static", "struct", "super", "trait", "true", "type", "unsafe", "use", "where", "while", "yield", "endpoint",
];

/// A name for a function, field or variable.
fn lower(name: &str) -> String {
    let name = snake(name);
    if KEYWORDS.contains(&name.as_str()) {
        name + "_"
    } else {
        name
    }
}

/// A name for a type.
fn upper(name: &str) -> String {
    let name = camel(name);
    let taken = [
        "Self", "Endpoint", "Block", "PeerGone", "Result", "Ok", "Err", "Some", "None", "Option",
    ];
    if taken.contains(&name.as_str()) {
        name + "_"
    } else {
        name
    }
}

const fn scalar(ty: ValType) -> &'static str {
    match ty {
        ValType::I64 => "i64",
        ValType::F32 => "f32",
        ValType::F64 => "f64",
        _ => "i32",
    }
}

/// The type of a field, as the program sees it.
fn outer(field: Field) -> String {
    match field {
        Field::Scalar(ty) => scalar(ty).into(),
        Field::Block(Element::Byte) => "Block<u8>".into(),
        Field::Block(Element::Scalar(ty)) => format!("Block<{}>", scalar(ty)),
        Field::Endpoint => "Endpoint".into(),
    }
}

/// The type that is passed for a field.
fn given(name: &str, field: Field) -> String {
    match field {
        Field::Scalar(_) => name.into(),
        Field::Block(_) | Field::Endpoint => format!("{name}.into_raw()"),
    }
}

/// A field out of what was passed.
fn taken(value: &str, field: Field) -> String {
    match field {
        Field::Scalar(_) => value.into(),
        Field::Block(_) => format!("Block::from_raw({value})"),
        Field::Endpoint => format!("Endpoint::from_raw({value})"),
    }
}

fn parameters(message: &Message) -> String {
    let one = |(name, field): &(String, Field)| format!(", {}: {}", lower(name), outer(*field));
    message.fields.iter().map(one).collect()
}

/// The type of the state that follows an arm.
fn next(contract: &Contract, arm: Arm) -> String {
    if arm.next == END {
        "()".into()
    } else {
        upper(&contract.states[usize::from(arm.next)].name)
    }
}

/// The value of the state that follows.
fn follow(contract: &Contract, arm: Arm) -> String {
    if arm.next == END {
        "()".into()
    } else {
        format!("{}(endpoint)", next(contract, arm))
    }
}

/// The whole module.
pub fn module(contract: &Contract) -> String {
    let first = upper(&contract.states[0].name);
    let mut text = format!(
        "//! The contract {}, made by `gond sip contract --rust`: change the contract, not this file.\n\
         //!\n\
         //! Each state is a type; what may be said in it are its methods, each of which yields the next state.\n\
         #![allow(dead_code, unused_imports, clippy::pedantic)]\n\n\
         use crate::gondwana::{{Block, Endpoint, PeerGone}};\n\n\
         /// A new channel: its two ends; `None` if there are as many as there may be.\n\
         pub fn open() -> Option<(client::{first}, server::{first})> {{\n    \
             let both = client::raw::open();\n    \
             (both != 0).then(|| {{\n        \
                 let ends = [both as i32, (both >> 32) as i32].map(Endpoint::from_raw);\n        \
                 let [ours, theirs] = ends;\n        \
                 (client::{first}(ours), server::{first}(theirs))\n    \
             }})\n\
         }}\n",
        contract.name
    );
    for side in [Side::Client, Side::Server] {
        text += &one_side(contract, side);
    }
    text
}

fn one_side(contract: &Contract, side: Side) -> String {
    let first = upper(&contract.states[0].name);
    let mut text = format!(
        "\n/// The {name}'s side.\npub mod {name} {{\n    use super::*;\n\n{raw}\n    \
         /// The channel that the program was started with; `None` at the second call, or if there is none.\n    \
         pub fn start() -> Option<{first}> {{\n        \
             let number = raw::start();\n        \
             (number != 0).then(|| {first}(Endpoint::from_raw(number)))\n    \
         }}\n",
        name = side.name(),
        raw = raw(contract, side)
    );
    for state in &contract.states {
        text += &match side.turn(state.direction) {
            Direction::Send => sending(contract, state),
            Direction::Receive => receiving(contract, state),
        };
    }
    text + "}\n"
}

/// The imports.
fn raw(contract: &Contract, side: Side) -> String {
    let mut text = format!(
        "    pub(super) mod raw {{\n        \
             #[link(wasm_import_module = \"{}\")]\n        \
             unsafe extern \"C\" {{\n            \
                 pub safe fn start() -> i32;\n            \
                 pub safe fn open() -> i64;\n            \
                 pub safe fn receive(endpoint: i32) -> i32;\n",
        contract.import_module(side)
    );
    for (at, message) in contract.messages.iter().enumerate() {
        let name = &message.name;
        if contract.sends(side, at) {
            let fields: String = message
                .fields
                .iter()
                .map(|(name, field)| format!(", {}: {}", lower(name), scalar(field.val_type())))
                .collect();
            let _ = write!(
                text,
                "            #[link_name = \"{name}\"]\n            \
                 pub safe fn send_{}(endpoint: i32{fields}) -> i32;\n",
                snake(name)
            );
        }
        if contract.sends(side.other(), at) {
            for (field, kind) in &message.fields {
                let _ = write!(
                    text,
                    "            #[link_name = \"{name}.{field}\"]\n            \
                     pub safe fn {}_{}(endpoint: i32) -> {};\n",
                    snake(name),
                    snake(field),
                    scalar(kind.val_type())
                );
            }
        }
    }
    text + "        }\n    }\n"
}

fn declared(state: &State, what: &str) -> String {
    format!(
        "\n    /// State {}: {what}.\n    #[must_use]\n    pub struct {}(pub(super) Endpoint);\n",
        state.name,
        upper(&state.name)
    )
}

fn sending(contract: &Contract, state: &State) -> String {
    let name = upper(&state.name);
    let mut text = declared(state, "this side speaks");
    let _ = write!(text, "\n    impl {name} {{\n");
    for arm in &state.arms {
        let message = &contract.messages[usize::from(arm.message)];
        let arguments: String = message
            .fields
            .iter()
            .map(|(name, field)| format!(", {}", given(&lower(name), *field)))
            .collect();
        let _ = write!(
            text,
            "        /// Sends {said}. What it carries is the sender's no more, also if the peer is gone.\n        \
             pub fn {function}(self{parameters}) -> Result<{next}, PeerGone> {{\n            \
                 let Self(endpoint) = self;\n            \
                 match raw::send_{raw}(endpoint.raw(){arguments}) {{\n                \
                     0 => Ok({follow}),\n                \
                     _ => Err(PeerGone),\n            \
                 }}\n        \
             }}\n",
            said = message.name,
            function = lower(&message.name),
            parameters = parameters(message),
            next = next(contract, *arm),
            raw = snake(&message.name),
            follow = follow(contract, *arm)
        );
    }
    let _ = write!(
        text,
        "    }}\n\n    \
         /// As a field of a message: an end may travel while it is its side's turn to speak.\n    \
         impl From<{name}> for Endpoint {{\n        \
             fn from(state: {name}) -> Self {{\n            state.0\n        }}\n    }}\n\n    \
         impl From<Endpoint> for {name} {{\n        \
             fn from(endpoint: Endpoint) -> Self {{\n            Self(endpoint)\n        }}\n    }}\n"
    );
    text
}

fn receiving(contract: &Contract, state: &State) -> String {
    let name = upper(&state.name);
    let mut text = declared(state, "the other side speaks");
    let _ = write!(
        text,
        "\n    /// The messages that may arrive in state {}, and the state after each.\n    pub enum {name}Message {{\n",
        state.name
    );
    for arm in &state.arms {
        let message = &contract.messages[usize::from(arm.message)];
        let fields: String = message
            .fields
            .iter()
            .map(|(name, field)| format!(", {}: {}", lower(name), outer(*field)))
            .collect();
        let _ = write!(
            text,
            "        /// {}.\n        {} {{ next: {}{fields} }},\n",
            message.name,
            upper(&message.name),
            next(contract, *arm)
        );
    }
    let _ = write!(
        text,
        "    }}\n\n    impl {name} {{\n        \
         /// Waits for a message.\n        \
         pub fn receive(self) -> Result<{name}Message, PeerGone> {{\n            \
             let Self(endpoint) = self;\n            \
             Ok(match raw::receive(endpoint.raw()) {{\n"
    );
    for arm in &state.arms {
        let message = &contract.messages[usize::from(arm.message)];
        let fields: String = message
            .fields
            .iter()
            .map(|(name, field)| {
                let value = format!("raw::{}_{}(endpoint.raw())", snake(&message.name), snake(name));
                format!("{}: {}, ", lower(name), taken(&value, *field))
            })
            .collect();
        let _ = writeln!(
            text,
            "                {} => {name}Message::{} {{ {fields}next: {} }},",
            arm.message,
            upper(&message.name),
            follow(contract, *arm)
        );
    }
    text + "                _ => return Err(PeerGone),\n            })\n        }\n    }\n"
}
