//! How many words of arguments each thunk copies: what the description says, held against the debug information.

use super::super::description::{Description, Stack, VARIADIC_WORDS};
use super::super::fault::{Cause, Fault, Unknown};
use super::super::input::Home;
use super::super::relocate::{Plan, World};
use super::super::stack::{StackWords, adjusted_words};
use super::super::thunk::Copied;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

/// The words of arguments on the stack of every function with a thunk.
pub(super) fn stack_words(
    description: &Description,
    world: &World<'_>,
    plan: &Plan,
) -> Result<Vec<Copied>, Vec<Fault>> {
    let mut words = vec![Copied::NONE; plan.thunks.len()];
    let mut faults = Vec::new();
    for (&node, &number) in &plan.thunks {
        let (file, section) = world.graph.places[node];
        let input = &world.inputs[file];
        let start = world.graph.functions[node].as_ref().map_or(0, |one| one.start);
        let here = Home::Section(section, start);
        let mut named = input.symbols.iter().filter(|one| one.home == here);
        let said = named.find_map(|symbol| description.exports.iter().find(|one| one.name == symbol.name));
        let said = said.map_or(Stack::Unsaid, |one| one.stack);
        let found = input.stack.get(&(section, start)).map(|one| &one.words);
        let found = found.or_else(|| adjusted_words(world, file, here));
        match decide(said, found, input.debug) {
            Ok(count) => words[number] = count,
            Err(cause) => faults.push(
                Fault::file(&input.file, cause)
                    .about(&world.graph.name(world.inputs, node))
                    .at(&input.sections[section].name, start),
            ),
        }
    }
    if faults.is_empty() { Ok(words) } else { Err(faults) }
}

fn decide(said: Stack, found: Option<&StackWords>, unknown: Unknown) -> Result<Copied, Cause> {
    // Behind those that have names on the stack.
    let variadic = |named: u32, more: u32| Copied::UpTo((named + more).next_multiple_of(2));
    match (said, found) {
        (Stack::Unsaid, None) => Err(Cause::StackUnknown(unknown)),
        (Stack::Unsaid, Some(StackWords::Words(count))) => Ok(Copied::Exactly(*count)),
        (Stack::Unsaid, Some(StackWords::Variadic { named })) => Ok(variadic(*named, VARIADIC_WORDS)),
        // Debug information that knows of another calling convention is believed before the description.
        (Stack::Unsaid, Some(StackWords::Undecided(why))) | (_, Some(StackWords::Foreign(why))) => {
            Err(Cause::StackParameter(why.clone()))
        }
        (Stack::Words(said), Some(StackWords::Words(found))) if said != *found => {
            Err(Cause::StackLie { said, found: *found })
        }
        (Stack::Words(_), Some(StackWords::Variadic { .. })) => Err(Cause::StackParameter(
            "it takes a variable number: write 'variadic'".to_string(),
        )),
        (Stack::Variadic(_), Some(StackWords::Words(count))) => Err(Cause::StackLie {
            said: VARIADIC_WORDS,
            found: *count,
        }),
        (Stack::Variadic(more), Some(StackWords::Variadic { named })) => Ok(variadic(*named, more)),
        (Stack::Variadic(more), _) => Ok(variadic(0, more)),
        (Stack::Words(count), _) => Ok(Copied::Exactly(count)),
    }
}
