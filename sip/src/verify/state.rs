//! What is known at one point of a function: registers, spill slots, facts, the last comparison.

use super::value::{Fact, Length, Place, Symbol, Value};
use alloc::{rc::Rc, vec::Vec};

/// Number of rsp among the registers.
pub(super) const RSP: usize = 4;
/// Number of rdi.
pub(super) const RDI: usize = 7;
/// Registers that a function returns as it found them: rbx, rbp, r12 to r15.
pub(super) const SAVED: [usize; 6] = [3, 5, 12, 13, 14, 15];

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
        Self { registers, slots: Rc::new(Vec::new()), facts: Rc::new(Vec::new()), compared: None, checked: 1 }
    }

    pub fn slot(&self, at: i64) -> Value {
        self.slots.binary_search_by_key(&at, |slot| slot.0).map_or(Value::Any, |found| self.slots[found].1)
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
        if let Fact::Within(length, symbol, slack) = fact {
            let known = self.facts.iter().position(|have| {
                matches!(have, Fact::Within(other, of, _) if *other == length && *of == symbol)
            });
            if let Some(at) = known {
                let Fact::Within(_, _, have) = self.facts[at] else { return };
                if slack > have {
                    Rc::make_mut(&mut self.facts)[at] = fact;
                }
                return;
            }
        } else if self.facts.contains(&fact) {
            return;
        }
        Rc::make_mut(&mut self.facts).push(fact);
    }

    /// The greatest known `slack` with `symbol + slack <= length`.
    pub fn slack(&self, length: Length, symbol: Symbol) -> Option<i64> {
        self.facts.iter().find_map(|fact| match fact {
            Fact::Within(other, of, slack) if *other == length && *of == symbol => Some(*slack),
            _ => None,
        })
    }

    pub fn is_typed(&self, place: Place) -> bool {
        self.facts.contains(&Fact::Typed(place))
    }

    /// Forgets every holder of a symbol that a place named, because it is executed again.
    pub fn forget(&mut self, place: Symbol) {
        let named = |symbol: Symbol| symbol >> 3 == place;
        for register in &mut self.registers {
            if register.holds(named) {
                *register = Value::Any;
            }
        }
        if self.slots.iter().any(|slot| slot.1.holds(named)) {
            Rc::make_mut(&mut self.slots).retain(|slot| !slot.1.holds(named));
        }
        let of = |fact: &Fact| match fact {
            Fact::Within(Length::Block(place), of, _) => named(*of) || named(place.symbol),
            Fact::Within(_, of, _) => named(*of),
            Fact::Typed(place) => named(place.symbol),
        };
        if self.facts.iter().any(of) {
            Rc::make_mut(&mut self.facts).retain(|fact| !of(fact));
        }
        if self.compared.is_some_and(|(a, b)| a.holds(named) || b.holds(named)) {
            self.compared = None;
        }
    }

    /// What a call leaves: the saved registers and the frame, but nothing about the contents of
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

    /// Joins what another way to `block` knows; says whether this state knows less than before.
    pub fn join(&mut self, other: &Self, block: u32) -> bool {
        let name = |location: u64| 2 << 62 | u64::from(block) << 24 | location;
        let mut changed = false;
        for (at, (have, new)) in self.registers.iter_mut().zip(&other.registers).enumerate() {
            let joined = have.join(new, name(at as u64));
            changed |= joined != *have;
            *have = joined;
        }
        if !Rc::ptr_eq(&self.slots, &other.slots) && self.slots != other.slots {
            let joined: Vec<(i64, Value)> = self
                .slots
                .iter()
                .map(|(at, have)| (*at, have.join(&other.slot(*at), name(16 + at.unsigned_abs()))))
                .filter(|slot| slot.1 != Value::Any)
                .collect();
            if joined != *self.slots {
                changed = true;
                self.slots = Rc::new(joined);
            }
        }
        if !Rc::ptr_eq(&self.facts, &other.facts) && self.facts != other.facts {
            let joined: Vec<Fact> = self.facts.iter().filter_map(|fact| match fact {
                Fact::Within(length, symbol, slack) => {
                    other.slack(*length, *symbol).map(|new| Fact::Within(*length, *symbol, new.min(*slack)))
                }
                Fact::Typed(place) => other.is_typed(*place).then_some(*fact),
            }).collect();
            if joined != *self.facts {
                changed = true;
                self.facts = Rc::new(joined);
            }
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
