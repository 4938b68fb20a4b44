//! What the verifier says of a module, compiled in every way, and the counts of all.

use sip::compile::{Bounds, Care, Cpu, Options, compile_judged};
use sip::verify::{BUDGET, efforts, refused};

/// Every way to compile.
pub const OPTIONS: [Options; 4] = [
    options(Bounds::Guard, Cpu::V2),
    options(Bounds::Explicit, Cpu::V2),
    options(Bounds::Guard, Cpu::V3),
    options(Bounds::Explicit, Cpu::V3),
];

const fn options(bounds: Bounds, cpu: Cpu) -> Options {
    Options { bounds, cpu }
}

/// Counts of modules, each compiled in every way.
#[derive(Default)]
pub struct Counts {
    modules: usize,
    images: usize,
    functions: usize,
    /// Runs whose output was compared.
    pub runs: usize,
    /// Steps a thousand bytes that the hardest proof took.
    hardest: usize,
    /// What could not be proved as it was compiled first, or not at all.
    bad: Vec<String>,
}

/// Compiles a module in every way, and proves it. A function that must be compiled again is as bad as one that is
/// refused: it is right, and slow.
pub fn judge(name: &str, bytes: &[u8]) -> Counts {
    let mut counts = Counts {
        modules: 1,
        ..Counts::default()
    };
    for options in OPTIONS {
        let way = format!("{name} {:?} {:?}", options.bounds, options.cpu);
        let mut bad = Vec::new();
        let image = compile_judged(bytes, options, |image, care| {
            let refused = refused(image).unwrap_or_default();
            bad.extend(refused.iter().map(|(at, why)| {
                let form = if care == Care::Fast {
                    "as first compiled"
                } else {
                    "compiled again"
                };
                format!("{way}: function {} {form}: {why}", at + image.module.imported_functions)
            }));
            refused.into_iter().map(|(at, _)| at).collect()
        });
        counts.bad.extend(bad);
        match image
            .map_err(|refusal| refusal.to_string())
            .and_then(|image| efforts(&image).map_err(|why| why.to_string()))
        {
            Ok(efforts) => {
                counts.images += 1;
                counts.functions += efforts.len();
                let hardest = efforts.iter().map(|effort| effort.steps * 1000 / effort.bytes).max();
                counts.hardest = counts.hardest.max(hardest.unwrap_or(0));
            }
            Err(why) => counts.bad.push(format!("{way}: {why}")),
        }
    }
    counts
}

impl Counts {
    /// These and others.
    pub fn add(&mut self, other: Self) {
        self.modules += other.modules;
        self.images += other.images;
        self.functions += other.functions;
        self.runs += other.runs;
        self.hardest = self.hardest.max(other.hardest);
        self.bad.extend(other.bad);
    }

    /// A line for a reader.
    pub fn line(&self) -> String {
        let [modules, images, functions] = [self.modules, self.images, self.functions];
        format!(
            "{modules} modules, {images} images, {functions} functions, {} runs, at most {} steps per 1000 bytes, {} not proved",
            self.runs,
            self.hardest,
            self.bad.len()
        )
    }

    /// Prints the counts, and fails if there is anything bad.
    pub fn report(self, of: &str) {
        println!("{of}: {}", self.line());
        assert!(self.modules > 0, "nothing was compiled");
        assert!(self.bad.is_empty(), "{of}: {}\n{}", self.bad.len(), self.bad.join("\n"));
        assert!(self.hardest < BUDGET * 1000 / 10, "{of}: {} steps", self.hardest);
    }
}
