//! Sends its arguments, one text after another, and prints what comes back.

mod gondwana;
mod words;

use gondwana::Block;
use words::client::{self, WaitingMessage};

fn main() {
    let mut ready = client::start().expect("started without a channel: gond sip run --channel words.contract …");
    for text in std::env::args().skip(1) {
        let Ok(waiting) = ready.text(Block::from_slice(text.as_bytes())) else {
            return println!("the server is gone");
        };
        let Ok(WaitingMessage::Counted { data, words, next }) = waiting.receive() else {
            return println!("the server is gone");
        };
        let mut bytes = vec![0; data.len()];
        data.read(0, &mut bytes);
        println!("{words} words: {}", String::from_utf8_lossy(&bytes));
        ready = next;
    }
    let _ = ready.stop();
}
