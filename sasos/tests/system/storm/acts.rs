//! The acts of a storm: drawn by lot, with pages and objects that are free for them.

use abi::{
    Call, Rights,
    address::PAGE,
    layout::{CONTROL_CHECKPOINT, UNMAP_REPLACE, UNMAP_ZERO},
};

use super::{
    Storm, THINGS,
    model::{Doing, Effect, Thing},
};

impl Storm {
    /// An object that an act may use now.
    fn pick(&mut self, alone: bool) -> Option<usize> {
        let number = self.rng.below(self.model.things.len() as u64) as usize;
        let thing = self.model.things[number].as_ref()?;
        thing.is_free(alone).then_some(number)
    }

    /// The pages of an object that is made or cut.
    fn length(&mut self) -> u64 {
        let most = *self.rng.pick(&[4, 60, 200, 700]);
        1 + self.rng.below(most)
    }

    fn pages(&mut self, number: usize) -> (usize, usize) {
        let length = self.model.thing(number).pages.len();
        let first = self.rng.below(length as u64) as usize;
        let most = (length - first).min(40) as u64;
        let most = if self.rng.one_in(3) { most } else { most.min(4) };
        (first, 1 + self.rng.below(most) as usize)
    }

    /// Something to do.
    pub(super) fn draw(&mut self) -> Option<Doing> {
        let count = self.model.count();
        let under_way = self.actors.iter().filter_map(|actor| actor.doing.as_ref());
        let room = self.room.saturating_sub(self.model.transient(under_way));
        let few = count < THINGS / 2;
        let dice = if few && self.rng.one_in(2) {
            50
        } else {
            self.rng.below(100)
        };
        let (call, arguments, effect) = match dice {
            0..50 => {
                let number = self.pick(false)?;
                let (page, count) = self.pages(number);
                if !self.model.thing(number).kept && count as u64 > room {
                    return None;
                }
                self.next += 1;
                let value = (dice < 30).then_some(self.next);
                return Some(Doing::Touch(number, page, count, value));
            }
            50..54 => {
                let pages = self.length();
                if count == THINGS {
                    return None;
                }
                (Call::ObjCreate, vec![pages * PAGE, 0], Effect::Create(pages))
            }
            54..62 => {
                let number = self.pick(true)?;
                let thing = self.model.thing(number);
                if !thing.noted {
                    return Some(Doing::Note(number));
                }
                (Call::KeepObject, vec![thing.base], Effect::Keep(number))
            }
            62..64 => {
                let number = self.pick(true)?;
                (
                    Call::ObjDelete,
                    vec![self.model.thing(number).base],
                    Effect::Delete(number),
                )
            }
            64..67 => {
                let number = self.pick(true)?;
                let pages = self.length();
                let base = self.model.thing(number).base;
                (Call::ObjResize, vec![base, pages * PAGE], Effect::Resize(number, pages))
            }
            67..70 => {
                let number = self.pick(true)?;
                let extra = self.rng.below(3);
                if count == THINGS || self.model.thing(number).touched() + 2 > room {
                    return None;
                }
                let base = self.model.thing(number).base;
                (
                    Call::ObjClone,
                    vec![base, extra * PAGE, 0],
                    Effect::Clone(number, extra),
                )
            }
            70..93 => return self.draw_pages(dice, room),
            93 => {
                let number = self.pick(false)?;
                let password = 7 + self.rng.below(3);
                let rights = *self.rng.pick(&[Rights::R, Rights::RX]);
                let arguments = vec![self.model.thing(number).base, password, rights.bits().into()];
                (Call::ObjPasswd, arguments, Effect::Shares(number))
            }
            94..96 => (Call::ApdFlush, vec![], Effect::Nothing),
            _ => (Call::SystemControl, vec![CONTROL_CHECKPOINT, 0], Effect::Nothing),
        };
        Some(call_of(call, &arguments, effect))
    }

    /// A call on a range of pages.
    fn draw_pages(&mut self, dice: u64, room: u64) -> Option<Doing> {
        let (call, arguments, effect) = match dice {
            70..76 => {
                let (to, from) = (self.pick(true)?, self.pick(true)?);
                let (first, count) = self.pages(from);
                let (second, _) = self.pages(to);
                let count = count.min(self.model.thing(to).pages.len() - second);
                if to == from || !self.model.thing(to).kept && count as u64 > room {
                    return None;
                }
                let at = |thing: &Thing, page: usize| thing.base + page as u64 * PAGE;
                let arguments = vec![
                    at(self.model.thing(from), first),
                    at(self.model.thing(to), second),
                    count as u64,
                ];
                (
                    Call::PageCopy,
                    arguments,
                    Effect::Copy((to, second), (from, first), count),
                )
            }
            76..82 => {
                let number = self.pick(true)?;
                let (first, count) = self.pages(number);
                let page = self.model.thing(number).base + first as u64 * PAGE;
                if self.has_replacement && self.model.thing(number).kept && self.rng.one_in(2) {
                    let arguments = vec![page, count as u64, UNMAP_REPLACE];
                    (Call::PageUnMap, arguments, Effect::Replace(number, first, count))
                } else {
                    let arguments = vec![page, count as u64, UNMAP_ZERO];
                    (Call::PageUnMap, arguments, Effect::Zero(number, first, count))
                }
            }
            82..85 => {
                let number = self.pick(false)?;
                let (first, count) = self.pages(number);
                let limits = *self.rng.pick(&[Rights::RW, Rights::RWX]);
                let page = self.model.thing(number).base + first as u64 * PAGE;
                let arguments = vec![page, count as u64, limits.bits().into()];
                (Call::PageLimit, arguments, Effect::Shares(number))
            }
            _ => {
                let number = self.pick(false)?;
                if !self.model.thing(number).kept {
                    return None;
                }
                let (first, count) = self.pages(number);
                let page = self.model.thing(number).base + first as u64 * PAGE;
                (Call::PageFlush, vec![page, count as u64], Effect::Shares(number))
            }
        };
        Some(call_of(call, &arguments, effect))
    }
}

fn call_of(call: Call, arguments: &[u64], effect: Effect) -> Doing {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    Doing::Call(call, all, effect)
}
