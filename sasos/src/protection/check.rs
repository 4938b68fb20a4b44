//! The invariants of nodes and their lists, for tests, fuzzers and debuggers.

use crate::{Server, World, pages::slots::Slot, protection::node::Nodes};

impl Server {
    /// A rule that does not hold of nodes, lists and links, with the address of the object.
    pub fn check_nodes(&self, world: &impl World) -> Option<(&'static str, u64)> {
        let mut listed = 0;
        for (id, object) in self.objects.iter() {
            let (mut linked, mut count, mut epoch) = (0, 0, None);
            let mut next = object.nodes.first();
            while let Some(at) = next {
                next = self.domains.after(at);
                let Some((domain, node)) = self.domains.get(at.space()).zip(self.domains.node(at)) else {
                    return Some(("a node of no domain", object.base()));
                };
                let found = domain.nodes.place(id) == Some(at.index());
                if node.object() != id || *epoch.get_or_insert(node.epoch) != node.epoch || node.epoch > object.epoch {
                    return Some(("a node in the wrong list", object.base()));
                }
                if !found && !domain.forgetting.contains(&at.index()) {
                    return Some(("a node that is neither found nor forgotten", object.base()));
                }
                if found && node.epoch == object.epoch && node.unlink_from > 0 {
                    return Some(("a node that is alive and is being unlinked", object.base()));
                }
                linked += u32::from(node.linked);
                count += 1;
            }
            if count != object.nodes.len() {
                return Some(("the length of a list of nodes", object.base()));
            }
            listed += u64::from(count);
            // A leaf has a reference of its object and one of each link.
            let mut next = object.slots.next_with_leaf(0);
            while let Some(number) = next {
                next = object.slots.next_with_leaf(number + 1);
                let leaf = object.slots.get(number).and_then(Slot::leaf);
                if leaf.is_some_and(|leaf| world.frame_references(leaf.frame()) > 1 + linked) {
                    return Some(("a link without a node", object.base()));
                }
            }
        }
        let known: u64 = self.domains.iter().map(|(_, domain)| domain.cached_objects()).sum();
        (known != listed).then_some(("nodes in no list", known))
    }
}
