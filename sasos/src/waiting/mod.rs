//! What threads wait for that is no page: semaphores, words, the console.

pub mod console;
pub mod semaphore;
