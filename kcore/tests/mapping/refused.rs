//! Several operations under way at the same time, with few frames and small quotas: tables and nodes are refused in the middle of all kinds of operations.

use crate::pieces_world::{Places, Supply, run_seeds};

#[test]
fn tables_are_refused_while_several_operations_are_under_way() {
    for places in [Places::All, Places::Few, Places::Ports] {
        run_seeds(Supply::Scarce, places, 300, 6);
    }
}
