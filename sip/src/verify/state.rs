//! The knowledge at one point of a function: registers, spill slots, facts, the last comparison.

use super::value::{Fact, Length, Linear, NAMELESS, Place, Symbol, Term, Value};
use crate::layout::GUARD_BYTES;
use alloc::{rc::Rc, vec::Vec};

/// Number of rsp among the registers.
pub(super) const RSP: usize = 4;
/// Number of rdi.
pub(super) const RDI: usize = 7;
/// Registers that a function returns as it found them: rbx, rbp, r12 to r15.
pub(super) const SAVED: [usize; 6] = [3, 5, 12, 13, 14, 15];

/// The place of which [`State::set_aside`] makes what an instruction named before. It is no address
/// and no block, and after the instruction nothing holds it.
pub(super) const OLD: Symbol = (1 << 59) - 2;

/// Facts that are kept whether anything holds their symbols or not.
const FEW: usize = 32;

/// Distances to a length that a widened fact tells: below it, not above it, not far above it.
const SLACKS: [i64; 3] = [1, 0, -(GUARD_BYTES as i64)];

#[derive(Clone, Debug)]
pub(super) struct State {
    pub registers: [Value; 16],
    /// Offset from the stack pointer at entry, ascending, and value. Absent is anything.
    slots: Rc<Vec<(i64, Value)>>,
    facts: Rc<Vec<Fact>>,
    /// Operands of the comparison that made the flags.
    pub compared: Option<(Value, Value)>,
    /// The lowest stack offset that was compared with the limit, 1 if none was.
    pub checked: i64,
}

impl State {
    /// The state at a function's entry.
    pub fn entry() -> Self {
        let mut registers = [Value::Any; 16];
        for register in SAVED {
            registers[register] = Value::Entry(register as u8);
        }
        registers[RSP] = Value::Stack(0);
        registers[RDI] = Value::Pointer(super::value::Base::Context, super::value::Linear::constant(0));
        Self {
            registers,
            slots: Rc::new(Vec::new()),
            facts: Rc::new(Vec::new()),
            compared: None,
            checked: 1,
        }
    }

    pub fn slot(&self, at: i64) -> Value {
        self.slots
            .binary_search_by_key(&at, |slot| slot.0)
            .map_or(Value::Any, |found| self.slots[found].1)
    }

    /// Forgets what overlaps a write, then records it if it is a whole word.
    pub fn write_slot(&mut self, at: i64, bytes: i64, value: Value) {
        let from = self.slots.partition_point(|slot| slot.0 <= at - 8);
        let to = self.slots.partition_point(|slot| slot.0 < at + bytes);
        let keep = bytes == 8 && value != Value::Any;
        if from == to && !keep {
            return;
        }
        let slots = Rc::make_mut(&mut self.slots);
        slots.splice(from..to, keep.then_some((at, value)));
    }

    /// Forgets what lies beneath the stack pointer.
    pub fn drop_below(&mut self, stack: i64) {
        if self.slots.first().is_some_and(|slot| slot.0 < stack) {
            Rc::make_mut(&mut self.slots).retain(|slot| slot.0 >= stack);
        }
    }

    pub fn add_fact(&mut self, fact: Fact) {
        if matches!(
            fact,
            Fact::Within(_, Term { symbol: NAMELESS, .. }, _)
                | Fact::Within(Length::Block(Place { symbol: NAMELESS, .. }), ..)
        ) {
            return;
        }
        if let Fact::Within(length, term, slack) = fact {
            let known = self
                .facts
                .iter()
                .position(|have| matches!(have, Fact::Within(other, of, _) if *other == length && *of == term));
            if let Some(at) = known {
                let Fact::Within(_, _, have) = self.facts[at] else {
                    return;
                };
                if slack > have {
                    Rc::make_mut(&mut self.facts)[at] = fact;
                }
                return;
            }
        } else if self.facts.contains(&fact) {
            return;
        }
        // Each time that they have doubled, so that a function with many comparisons is not quadratic.
        if self.facts.len() >= FEW && self.facts.len().is_power_of_two() {
            self.drop_idle();
        }
        Rc::make_mut(&mut self.facts).push(fact);
    }

    /// Forgets facts of symbols that nothing holds any more: nobody can ask for them.
    fn drop_idle(&mut self) {
        let mut held = alloc::vec![0];
        let values = self.registers.iter().chain(self.slots.iter().map(|slot| &slot.1));
        for value in values {
            value.holds(|symbol| {
                held.push(symbol);
                false
            });
        }
        held.sort_unstable();
        let is_held = |symbol: Symbol| held.binary_search(&symbol).is_ok();
        Rc::make_mut(&mut self.facts).retain(|fact| match fact {
            Fact::Within(Length::Block(place), of, _) => is_held(place.symbol) && is_held(of.symbol),
            Fact::Within(_, of, _) => is_held(of.symbol),
            Fact::Typed(place) => is_held(place.symbol),
        });
    }

    /// How many slots and facts are known.
    pub fn size(&self) -> [usize; 2] {
        [self.slots.len(), self.facts.len()]
    }

    /// The greatest known `slack` with `term + slack <= length`.
    pub fn slack(&self, length: Length, term: Term) -> Option<i64> {
        self.facts.iter().find_map(|fact| match fact {
            Fact::Within(other, of, slack) if *other == length && *of == term => Some(*slack),
            _ => None,
        })
    }

    pub fn is_typed(&self, place: Place) -> bool {
        self.facts.contains(&Fact::Typed(place))
    }

    /// Gives what a place named when it was executed before the name `OLD`, for the one instruction
    /// that is about to name it anew; says whether there was any.
    pub fn set_aside(&mut self, place: Symbol) -> bool {
        let named = |symbol: Symbol| symbol != NAMELESS && symbol >> 3 == place;
        let held = self.registers.iter().any(|value| value.holds(named))
            || self.slots.iter().any(|slot| slot.1.holds(named))
            || self.compared.is_some_and(|(a, b)| a.holds(named) || b.holds(named))
            || self.facts.iter().any(|fact| match fact {
                Fact::Within(Length::Block(place), of, _) => named(of.symbol) || named(place.symbol),
                Fact::Within(_, of, _) => named(of.symbol),
                Fact::Typed(place) => named(place.symbol),
            });
        if !held {
            return false;
        }
        let rename = |symbol: Symbol| if named(symbol) { OLD << 3 | (symbol & 7) } else { symbol };
        let moved = |place: &Place| Place {
            symbol: rename(place.symbol),
            ..*place
        };
        for register in &mut self.registers {
            *register = register.renamed(rename);
        }
        for slot in Rc::make_mut(&mut self.slots) {
            slot.1 = slot.1.renamed(rename);
        }
        let other = |term: &Term| Term {
            symbol: rename(term.symbol),
            ..*term
        };
        for fact in Rc::make_mut(&mut self.facts) {
            *fact = match fact {
                Fact::Within(Length::Block(place), of, slack) => {
                    Fact::Within(Length::Block(moved(place)), other(of), *slack)
                }
                Fact::Within(length, of, slack) => Fact::Within(*length, other(of), *slack),
                Fact::Typed(place) => Fact::Typed(moved(place)),
            };
        }
        self.compared = self.compared.map(|(a, b)| (a.renamed(rename), b.renamed(rename)));
        true
    }

    /// Forgets every holder of a symbol that a place named, because it is executed again.
    pub fn forget(&mut self, place: Symbol) {
        let named = |symbol: Symbol| symbol != NAMELESS && symbol >> 3 == place;
        for register in &mut self.registers {
            if register.holds(named) {
                *register = register.nameless();
            }
        }
        if self.slots.iter().any(|slot| slot.1.holds(named)) {
            let slots = Rc::make_mut(&mut self.slots);
            slots
                .iter_mut()
                .filter(|slot| slot.1.holds(named))
                .for_each(|slot| slot.1 = slot.1.nameless());
            slots.retain(|slot| slot.1 != Value::Any);
        }
        let of = |fact: &Fact| match fact {
            Fact::Within(Length::Block(place), of, _) => named(of.symbol) || named(place.symbol),
            Fact::Within(_, of, _) => named(of.symbol),
            Fact::Typed(place) => named(place.symbol),
        };
        if self.facts.iter().any(of) {
            Rc::make_mut(&mut self.facts).retain(|fact| !of(fact));
        }
        if self.compared.is_some_and(|(a, b)| a.holds(named) || b.holds(named)) {
            self.compared = None;
        }
    }

    /// The knowledge that a call leaves: the saved registers and the frame, but nothing about the contents of
    /// tables and handles, which the callee may have changed.
    pub fn after_call(&mut self) {
        for (at, register) in self.registers.iter_mut().enumerate() {
            let kept = at == RSP || SAVED.contains(&at);
            if !kept || register.is_perishable() {
                *register = Value::Any;
            }
        }
        if self.slots.iter().any(|slot| slot.1.is_perishable()) {
            Rc::make_mut(&mut self.slots).retain(|slot| !slot.1.is_perishable());
        }
        let perishable = |fact: &Fact| matches!(fact, Fact::Typed(_) | Fact::Within(Length::Block(_), ..));
        if self.facts.iter().any(perishable) {
            Rc::make_mut(&mut self.facts).retain(|fact| !perishable(fact));
        }
        self.compared = None;
    }

    /// The facts about a number against lengths: `number + slack <= length`.
    fn bounds(&self, number: &Linear) -> impl Iterator<Item = (Length, i64)> {
        let (term, add) = (number.term(), number.add);
        let named = number.symbol != NAMELESS;
        self.facts.iter().filter_map(move |fact| match fact {
            Fact::Within(length @ (Length::Memory(_) | Length::Table(_)), of, slack) if named && *of == term => {
                Some((*length, slack.checked_sub(add)?))
            }
            _ => None,
        })
    }

    /// The facts that both ways have of a location that gets a name of its own at a join.
    fn common(&self, have: &Value, other: &Self, new: &Value, name: Symbol, facts: &mut Vec<Fact>) {
        let (Value::Number(have), Value::Number(new)) = (have, new) else {
            return;
        };
        // A counter may come nearer to the length with every turn: what is less than before is widened, so that it settles.
        let settled = |slack: i64, known: i64| {
            if have.symbol == name && known < slack {
                SLACKS.into_iter().find(|least| known >= *least)
            } else {
                Some(slack.min(known))
            }
        };
        for (length, slack) in self.bounds(have) {
            if let Some((_, known)) = other.bounds(new).find(|(of, _)| *of == length)
                && let Some(slack) = settled(slack, known)
            {
                facts.push(Fact::Within(length, Term::of(name), slack));
            }
        }
    }

    /// Joins what another way to `block` knows; says whether this state knows less than before.
    ///
    /// A number that differs gets the name of this block and its location. Such names mean the most
    /// recent entry of the block, and this is one: what `other` knows of them by name is of the entry
    /// before, so facts of them are made anew from the numbers that arrive, never intersected.
    pub fn join(&mut self, other: &Self, block: u32) -> bool {
        let name = |location: u64| 2 << 62 | u64::from(block) << 28 | location;
        let own = |symbol: Symbol| {
            symbol >> 62 == 2 && symbol != NAMELESS && (symbol >> 28) & 0xffff_ffff == u64::from(block)
        };
        let mut changed = false;
        let mut renamed = Vec::new();
        for at in 0..self.registers.len() {
            let (have, new) = (self.registers[at], other.registers[at]);
            let joined = have.join(&new, name(at as u64));
            if matches!(joined, Value::Number(linear) if linear.symbol == name(at as u64)) {
                self.common(&have, other, &new, name(at as u64), &mut renamed);
            }
            changed |= joined != have;
            self.registers[at] = joined;
        }
        if !Rc::ptr_eq(&self.slots, &other.slots) && self.slots != other.slots {
            let mut joined = Vec::new();
            for (at, have) in self.slots.iter() {
                let (new, named) = (other.slot(*at), name(16 + at.unsigned_abs()));
                let value = have.join(&new, named);
                if matches!(value, Value::Number(linear) if linear.symbol == named) {
                    self.common(have, other, &new, named, &mut renamed);
                }
                if value != Value::Any {
                    joined.push((*at, value));
                }
            }
            if joined != *self.slots {
                changed = true;
                self.slots = Rc::new(joined);
            }
        } else {
            // Slots that both ways share keep their names and what is known of them.
            for (at, have) in self.slots.iter() {
                let named = name(16 + at.unsigned_abs());
                if matches!(have, Value::Number(linear) if linear.symbol == named) {
                    self.common(have, other, have, named, &mut renamed);
                }
            }
        }
        // Mostly both ways know the same in the same order.
        let same = |at: usize, fact: &Fact| other.facts.get(at) == Some(fact);
        let kept = self.facts.iter().enumerate().filter_map(|(at, fact)| match fact {
            Fact::Within(_, term, _) if own(term.symbol) => None,
            Fact::Within(Length::Block(place), ..) if own(place.symbol) => None,
            Fact::Typed(place) if own(place.symbol) => None,
            _ if same(at, fact) => Some(*fact),
            Fact::Within(length, term, slack) => other
                .slack(*length, *term)
                .map(|new| Fact::Within(*length, *term, new.min(*slack))),
            Fact::Typed(place) => other.is_typed(*place).then_some(*fact),
        });
        let mut joined: Vec<Fact> = kept.collect();
        joined.extend(renamed);
        let lost = || self.facts.iter().any(|fact| !joined.contains(fact)) || joined.len() != self.facts.len();
        if joined != *self.facts && lost() {
            changed = true;
            self.facts = Rc::new(joined);
        }
        if self.compared.is_some() && self.compared != other.compared {
            self.compared = None;
            changed = true;
        }
        if other.checked > self.checked {
            self.checked = other.checked;
            changed = true;
        }
        changed
    }
}
