//! The C header of a contract: each message a function, with the name of the contract and the side.

use super::snake;
use sip::contract::{Contract, Field, Side};
use sip::module::ValType;
use std::fmt::Write;

const fn c_type(field: Field) -> &'static str {
    match field {
        Field::Scalar(ValType::I64) => "int64_t",
        Field::Scalar(ValType::F32) => "float",
        Field::Scalar(ValType::F64) => "double",
        Field::Scalar(_) => "int32_t",
        Field::Block(_) => "gondwana_block",
        Field::Endpoint => "gondwana_endpoint",
    }
}

/// The whole header.
pub fn header(contract: &Contract) -> String {
    let name = snake(&contract.name);
    let big = name.to_uppercase();
    let mut text = format!(
        "/* The contract {}, made by `gond sip contract --c`: change the contract, not this file. */\n\
         #ifndef CONTRACT_{big}_H\n#define CONTRACT_{big}_H\n\n#include \"gondwana.h\"\n\n\
         /* What receive yields; GONDWANA_PEER_GONE if the peer is gone. */\nenum {name}_message {{\n",
        contract.name
    );
    for (at, message) in contract.messages.iter().enumerate() {
        let _ = writeln!(text, "    {big}_{} = {at},", snake(&message.name).to_uppercase());
    }
    text += "};\n";
    for side in [Side::Client, Side::Server] {
        let prefix = format!("{name}_{}", side.name());
        let module = contract.import_module(side);
        let mut declare = |result: &str, function: &str, parameters: &str, import: &str| {
            let _ = write!(
                text,
                "extern {result} {prefix}_{function}({parameters})\n    GONDWANA_IMPORT(\"{module}\", \"{import}\");\n"
            );
        };
        declare("gondwana_endpoint", "start", "void", "start");
        declare("int64_t", "open", "void", "open");
        declare("int32_t", "receive", "gondwana_endpoint", "receive");
        for (at, message) in contract.messages.iter().enumerate() {
            let function = snake(&message.name);
            if contract.sends(side, at) {
                let fields: String = message
                    .fields
                    .iter()
                    .map(|(field, kind)| format!(", {} {}", c_type(*kind), field_name(field)))
                    .collect();
                let parameters = format!("gondwana_endpoint endpoint_{fields}");
                declare("int32_t", &function, &parameters, &message.name);
            }
            if contract.sends(side.other(), at) {
                for (field, kind) in &message.fields {
                    let function = format!("{function}_{}", snake(field));
                    let import = format!("{}.{field}", message.name);
                    declare(c_type(*kind), &function, "gondwana_endpoint", &import);
                }
            }
        }
    }
    text + "\n#endif\n"
}

/// A parameter's name that is no keyword of C.
fn field_name(name: &str) -> String {
    snake(name) + "_"
}
