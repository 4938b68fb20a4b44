//! Sends each text back in capital letters, with the number of its words. The block is changed where it
//! is: nothing is copied.

mod gondwana;
mod words;

use words::server::{self, ReadyMessage};

fn main() {
    let mut ready = server::start().expect("started without a channel: gond sip run --channel words.contract …");
    while let Ok(ReadyMessage::Text { mut data, next }) = ready.receive() {
        let (mut words, mut inside) = (0, false);
        for at in 0..data.len() {
            let byte = data.get(at);
            words += i32::from(!inside && byte != b' ');
            inside = byte != b' ';
            data.set(at, byte.to_ascii_uppercase());
        }
        match next.counted(data, words) {
            Ok(again) => ready = again,
            Err(_) => return,
        }
    }
}
