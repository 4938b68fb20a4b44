//! `gond module` by itself.
fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    std::process::exit(module_cli::command(&words));
}
