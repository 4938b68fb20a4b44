//! Memory of the server: the window on what the kernel hands out, the heap in it, and the one state.

pub mod heap;
pub mod state;

mod window;

pub use window::Window;
