//! Several operations under way at the same time, with memory enough for all of them.

use crate::pieces_world::{Places, Supply, run_seeds};

#[test]
fn pieces_of_several_operations_in_any_order() {
    run_seeds(Supply::Plenty, Places::All, 400, 16);
    run_seeds(Supply::Plenty, Places::Few, 600, 16);
}

#[test]
fn pieces_of_several_operations_on_ports_in_any_order() {
    run_seeds(Supply::Plenty, Places::Ports, 60, 16);
}
