//! sasos
