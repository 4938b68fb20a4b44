//! Free spaces against the abstract model of Appendix A: one case for each rule, long operations,
//! random sequences, and all short sequences.

#[path = "../fake/mod.rs"]
mod fake;

mod bench;
mod burnt;
mod claims;
mod directed;
mod doomed;
mod errors;
mod exhaustive;
mod interleaved;
mod joined;
mod lengthened;
mod linked;
mod long;
mod model;
mod nodes;
mod older;
mod open;
mod pieces_checks;
mod pieces_world;
mod random;
mod refused;
mod remembered;
mod sparse;
mod stretches;
mod turn_to_claim;
mod turn_to_open;
mod world;
mod younger;
