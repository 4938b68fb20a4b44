//! `gond check`: is all of a disk image as it should be?
