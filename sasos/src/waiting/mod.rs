//! Waiting for other threads and for the console: semaphores, words of memory, the terminal.

pub mod console;
pub mod semaphore;
