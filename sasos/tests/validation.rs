//! Access rights: the server against a plain model.
//!
//! Several tasks make objects, hand out capabilities in Clists, register and revoke passwords,
//! change their APDs, delete. The model is three lists and no cache. After every step some
//! accesses are tried through remembered translations; after every revocation and deletion all of
//! them, for they must be in force at once, everywhere.

mod common;

use abi::{Call, Error, Rights, layout::Capability};
use common::{Actor, Order, Rig};
use kcore::SpaceId;
use sasos::{Access, protection::apd::Apd};
use sim::seeds;

/// An object as the model has it.
struct Thing {
    base: u64,
    end: u64,
    /// The actor that made it, while it is transient.
    home: Option<usize>,
    passwords: Vec<(u64, Rights)>,
}

/// A Clist: where it is and what stands in it.
struct List {
    base: u64,
    capabilities: Vec<Capability>,
    order: Order,
}

struct Player {
    actor: Actor,
    /// Indices into the lists, in the order of its APD.
    apd: Vec<usize>,
    /// A domain merged with the player's, as a protected call would make it, and its own list.
    callee: Option<(SpaceId, usize)>,
}

struct Game {
    rig: Rig,
    things: Vec<Thing>,
    lists: Vec<List>,
    players: Vec<Player>,
}

/// W and X bring R: page tables know no better.
fn effective(rights: Rights) -> Rights {
    if rights.intersection(Rights::RWX).is_empty() {
        rights
    } else {
        rights.union(Rights::R)
    }
}

impl Game {
    fn new(seed: u64) -> Self {
        let rig = Rig::new(seed, 6000, 4096);
        let mut game = Self {
            rig,
            things: Vec::new(),
            lists: Vec::new(),
            players: Vec::new(),
        };
        for _ in 0..4 {
            let actor = game.rig.actor(Apd::EMPTY);
            game.players.push(Player {
                actor,
                apd: Vec::new(),
                callee: None,
            });
        }
        for player in 0..4 {
            for order in [Order::Sorted, Order::Any] {
                game.new_list(player, order);
            }
        }
        for player in 0..2 {
            let own = game.new_list(player, Order::Sorted);
            let mut apd = Apd::EMPTY;
            apd.add(
                game.rig
                    .server
                    .clist_ref(&mut game.rig.world, game.lists[own].base)
                    .unwrap(),
            )
            .unwrap();
            let parent = game.players[player].actor.space;
            let space = game
                .rig
                .server
                .callee_domain_create(&mut game.rig.world, apd, Some(parent), sasos::accounts::AccountId::ROOT)
                .unwrap();
            game.players[player].callee = Some((space, own));
        }
        game
    }

    /// A Clist that all players can read: its owner's password is listed in itself by nobody, so a
    /// read capability is registered and the list is inserted by those who hold it.
    fn new_list(&mut self, player: usize, order: Order) -> usize {
        let actor = self.players[player].actor;
        let (base, _) = self.rig.call(actor, Call::ObjCreate, &[3 * 4096, 0]).unwrap();
        self.rig.write_clist(actor.space, base, &[], order);
        self.lists.push(List {
            base,
            capabilities: Vec::new(),
            order,
        });
        self.lists.len() - 1
    }

    fn some(&mut self, length: usize) -> usize {
        self.rig.rng.below(length as u64) as usize
    }

    /// The rights of an actor according to the model.
    fn rights(&self, player: usize, thing: usize) -> Rights {
        let thing = &self.things[thing];
        let home = if thing.home == Some(player) {
            Rights::OWNER
        } else {
            Rights::NONE
        };
        let listed = self.players[player].apd.iter().map(|&list| self.rights_by(list, thing));
        listed.fold(home, Rights::union)
    }

    fn rights_of_callee(&self, player: usize, own: usize, thing: usize) -> Rights {
        self.rights(player, thing)
            .union(self.rights_by(own, &self.things[thing]))
    }

    fn rights_by(&self, list: usize, thing: &Thing) -> Rights {
        let held = self.lists[list]
            .capabilities
            .iter()
            .filter(|held| (thing.base..thing.end).contains(&held.address));
        held.flat_map(|held| thing.passwords.iter().filter(|listed| listed.0 == held.password))
            .fold(Rights::NONE, |sum, listed| sum.union(effective(listed.1)))
    }

    fn step(&mut self) {
        match self.rig.rng.below(100) {
            0..15 => self.create(),
            15..20 => self.clone(),
            20..35 => self.register(),
            35..45 => self.revoke(),
            45..65 => self.hand_over(),
            65..72 => self.take_back(),
            72..80 => self.change_apd(),
            80..86 => self.delete(),
            86..90 => self.keep(),
            90..93 => self.rewrite_sorted(),
            _ => self.lookup(),
        }
    }

    fn create(&mut self) {
        if self.things.len() > 24 {
            return;
        }
        let player = self.some(4);
        let pages = *self.rig.rng.pick(&[1, 1, 2, 40, 511, 700]);
        let (base, password) = self
            .rig
            .call(self.players[player].actor, Call::ObjCreate, &[pages * 4096 - 5, 0])
            .unwrap();
        let passwords = vec![(password, Rights::OWNER)];
        self.things.push(Thing {
            base,
            end: base + pages * 4096,
            home: Some(player),
            passwords,
        });
    }

    fn clone(&mut self) {
        if self.things.is_empty() || self.things.len() > 24 {
            return;
        }
        let (player, thing) = (self.some(4), self.some(self.things.len()));
        let allowed = self.rights(player, thing).contains(Rights::RX);
        let source = &self.things[thing];
        let bytes = source.end - source.base + 4096;
        let result = self
            .rig
            .call(self.players[player].actor, Call::ObjClone, &[source.base, 4096, 77]);
        assert_eq!(result.is_ok(), allowed, "{result:?}");
        if let Ok((base, password)) = result {
            assert_eq!(password, 77);
            self.things.push(Thing {
                base,
                end: base + bytes,
                home: Some(player),
                passwords: vec![(77, Rights::OWNER)],
            });
        }
    }

    fn register(&mut self) {
        if self.things.is_empty() {
            return;
        }
        let (player, thing) = (self.some(4), self.some(self.things.len()));
        let allowed = self.rights(player, thing).contains(Rights::OWNER);
        let rights = *self.rig.rng.pick(&[
            Rights::R,
            Rights::RW,
            Rights::RX,
            Rights::W,
            Rights::X,
            Rights::D,
            Rights::OWNER,
        ]);
        let password = 1000 + self.rig.rng.below(40);
        let address = self.inside(thing);
        let result = self.rig.call(
            self.players[player].actor,
            Call::ObjPasswd,
            &[address, password, u64::from(rights.bits())],
        );
        assert_eq!(
            result,
            if allowed {
                Ok((password, 0))
            } else {
                Err(Error::Protection)
            }
        );
        if allowed {
            let passwords = &mut self.things[thing].passwords;
            passwords.retain(|listed| listed.0 != password);
            passwords.push((password, rights));
            self.check_thing(thing);
        }
    }

    fn inside(&mut self, thing: usize) -> u64 {
        let (base, end) = (self.things[thing].base, self.things[thing].end);
        base + self.rig.rng.below(end - base)
    }

    fn revoke(&mut self) {
        if self.things.is_empty() {
            return;
        }
        let (player, thing) = (self.some(4), self.some(self.things.len()));
        if self.things[thing].passwords.is_empty() {
            return;
        }
        let place = self.some(self.things[thing].passwords.len());
        let password = self.things[thing].passwords[place].0;
        let allowed = self.rights(player, thing).contains(Rights::OWNER);
        let result = self.rig.call(
            self.players[player].actor,
            Call::ObjPasswd,
            &[self.things[thing].base, password, 0],
        );
        assert_eq!(
            result,
            if allowed {
                Ok((password, 0))
            } else {
                Err(Error::Protection)
            }
        );
        if allowed {
            self.things[thing].passwords.remove(place);
            self.check_thing(thing);
        }
    }

    /// Somebody writes a capability, true or false, into a list. It is found when it is needed.
    fn hand_over(&mut self) {
        if self.things.is_empty() {
            return;
        }
        let (list, thing) = (self.some(self.lists.len()), self.some(self.things.len()));
        let known = self.things[thing].passwords.len();
        let password = if known == 0 || self.rig.rng.one_in(8) {
            self.rig.rng.next_u64()
        } else {
            let place = self.some(known);
            self.things[thing].passwords[place].0
        };
        let address = self.inside(thing);
        self.lists[list].capabilities.push(Capability { address, password });
        self.rewrite(list);
    }

    /// Writes the list as it is in the model. Lists belong to the players in turn, two each, but for
    /// those of the callees; their makers write them.
    fn rewrite(&mut self, list: usize) {
        let owner = if list < 8 { list / 2 } else { list - 8 };
        let space = self.players[owner].actor.space;
        let List {
            base,
            capabilities,
            order,
        } = &self.lists[list];
        // A list is sorted by what its capabilities name, not by the addresses they happen to use.
        let mut written = capabilities.clone();
        if *order == Order::Sorted {
            for capability in &mut written {
                if let Some(thing) = self
                    .things
                    .iter()
                    .find(|thing| (thing.base..thing.end).contains(&capability.address))
                {
                    capability.address = thing.base;
                }
            }
        }
        self.rig.write_clist(space, *base, &written, *order);
    }

    /// Somebody takes a capability out of a list. Rights that were cached by it stay until they are flushed.
    fn take_back(&mut self) {
        let list = self.some(self.lists.len());
        if self.lists[list].capabilities.is_empty() {
            return;
        }
        let place = self.some(self.lists[list].capabilities.len());
        self.lists[list].capabilities.swap_remove(place);
        self.rewrite(list);
        self.flush_all();
    }

    fn flush_all(&mut self) {
        for player in 0..4 {
            self.rig.call(self.players[player].actor, Call::ApdFlush, &[]).unwrap();
            self.flush_callee(player);
        }
    }

    /// The same as `PdxCall` would arrange: a domain derived from another one is flushed with it.
    fn flush_callee(&mut self, player: usize) {
        if let Some((space, _)) = self.players[player].callee {
            self.rig.server.domain_flush(&mut self.rig.world, space);
        }
    }

    fn change_apd(&mut self) {
        let player = self.some(4);
        let actor = self.players[player].actor;
        let count = self.players[player].apd.len();
        if count > 0 && self.rig.rng.one_in(3) {
            let slot = self.some(count);
            self.rig.call(actor, Call::ApdDelete, &[slot as u64]).unwrap();
            self.players[player].apd.remove(slot);
        } else if count < 16 {
            // A player can insert what he can read: his own lists.
            let list = player * 2 + self.some(2);
            let slot = self.some(count + 1);
            self.rig
                .call(actor, Call::ApdInsert, &[slot as u64, self.lists[list].base + 8])
                .unwrap();
            self.players[player].apd.insert(slot, list);
            let foreign = (list + 2) % 8;
            let refused = self.rig.call(actor, Call::ApdInsert, &[0, self.lists[foreign].base]);
            assert_eq!(refused, Err(Error::Protection));
        }
        self.flush_callee(player);
        for thing in 0..self.things.len() {
            self.check_thing(thing);
        }
    }

    fn delete(&mut self) {
        if self.things.is_empty() {
            return;
        }
        let (player, thing) = (self.some(4), self.some(self.things.len()));
        let allowed = self.rights(player, thing).contains(Rights::D);
        let address = self.inside(thing);
        let result = self.rig.call(self.players[player].actor, Call::ObjDelete, &[address]);
        assert_eq!(result, if allowed { Ok((0, 0)) } else { Err(Error::Protection) });
        if !allowed {
            return;
        }
        let gone = self.things.remove(thing);
        for player in 0..4 {
            let space = self.players[player].actor.space;
            for address in [gone.base, gone.end - 1] {
                assert_eq!(self.rig.touch(space, address, Access::Read), Err(Error::BadAddress));
            }
        }
        // The address may be used again by an object that has other passwords but for one: 77, that of
        // all clones. So the model forgets what named it.
        for list in 0..self.lists.len() {
            let before = self.lists[list].capabilities.len();
            self.lists[list]
                .capabilities
                .retain(|held| !(gone.base..gone.end).contains(&held.address));
            if self.lists[list].capabilities.len() != before {
                self.rewrite(list);
            }
        }
    }

    fn keep(&mut self) {
        if self.things.is_empty() {
            return;
        }
        let (player, thing) = (self.some(4), self.some(self.things.len()));
        let allowed = self.rights(player, thing).contains(Rights::OWNER);
        let result = self
            .rig
            .call(self.players[player].actor, Call::KeepObject, &[self.things[thing].base]);
        assert_eq!(result, if allowed { Ok((0, 0)) } else { Err(Error::Protection) });
        if allowed {
            self.things[thing].home = None;
            self.flush_all();
        }
    }

    /// Capabilities that are listed with an address inside the object, in a list that is sorted.
    fn rewrite_sorted(&mut self) {
        let list = self.some(self.lists.len());
        self.rewrite(list);
    }

    fn lookup(&mut self) {
        if self.things.is_empty() {
            return;
        }
        let (player, thing) = (self.some(4), self.some(self.things.len()));
        let wanted = *self
            .rig
            .rng
            .pick(&[Rights::R, Rights::W, Rights::X, Rights::D, Rights::OWNER]);
        let address = self.inside(thing);
        let result = self.rig.call(
            self.players[player].actor,
            Call::ApdLookup,
            &[address, u64::from(wanted.bits())],
        );
        assert_eq!(
            result.is_ok(),
            self.rights(player, thing).contains(wanted),
            "{result:?}"
        );
        let Ok((found, 0)) = result else { return };
        if found != 0 {
            let named = self.players[player].apd.iter().any(|&list| {
                let base = self.lists[list].base;
                (base + 32..base + 3 * 4096).contains(&found) && (found - base).is_multiple_of(16)
            });
            assert!(named, "{found:#x} is not in a list of the APD");
        }
    }

    /// Tries every kind of access of every domain to an object.
    fn check_thing(&mut self, thing: usize) {
        for player in 0..4 {
            let rights = self.rights(player, thing);
            self.check_access(self.players[player].actor.space, thing, rights);
            if let Some((space, own)) = self.players[player].callee {
                let rights = self.rights_of_callee(player, own, thing);
                self.check_access(space, thing, rights);
            }
        }
    }

    fn check_access(&mut self, space: SpaceId, thing: usize, rights: Rights) {
        let address = self.inside(thing);
        let base = self.things[thing].base;
        for access in [Access::Read, Access::Write, Access::Execute] {
            for address in [base, address] {
                let result = self.rig.touch(space, address, access);
                let expected = rights.contains(access.right());
                assert_eq!(
                    result.is_ok(),
                    expected,
                    "{access:?} of {address:#x} in {space:?}, which has {rights}: {result:?}"
                );
                assert!(result.is_ok() || result == Err(Error::Protection));
            }
        }
    }

    fn check_some(&mut self) {
        for _ in 0..4.min(self.things.len()) {
            let (player, thing) = (self.some(4), self.some(self.things.len()));
            let rights = self.rights(player, thing);
            self.check_access(self.players[player].actor.space, thing, rights);
        }
    }
}

#[test]
fn the_server_agrees_with_a_plain_model() {
    seeds::run(40, |seed| {
        let mut game = Game::new(seed);
        for step in 0..400 {
            game.step();
            game.check_some();
            if step % 50 == 0 {
                game.rig.check();
            }
        }
        game.rig.check();
    });
}
