//! Random sequences of operations over many spaces, shrunk when they fail.
