//! All states that short sequences over few spaces and pages can reach.
