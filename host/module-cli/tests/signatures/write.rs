//! The C sources of a batch of random signatures. Both sides make the same values from the same seed, so each can tell whether what it
//! was given is what the other side gave: field by field, because nobody keeps what lies between fields.

use std::collections::BTreeSet;
use std::fmt::Write;
use testing::Random;

/// A type: its name, an upper bound for its bytes, and how many numbers it is made of.
#[derive(Clone)]
struct Type {
    name: String,
    bytes: u64,
    leaves: u64,
    /// Whether it may stand for `...`: it is not promoted, and not empty.
    unnamed: bool,
}

struct Function {
    result: usize,
    named: Vec<usize>,
    /// The types of the others, if it is variadic.
    unnamed: Option<Vec<usize>>,
}

/// Types and functions.
pub struct Batch {
    seed: u64,
    types: Vec<Type>,
    definitions: String,
    functions: Vec<Function>,
}

/// The beginning of every source.
const START: &str = "\
#include <stdarg.h>
typedef unsigned long u64;
#ifdef __clang__ /* whose functions keep nothing in the data register if they call nothing */
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline __attribute__((unused))
#endif
#define NEVER_INLINE __attribute__((noinline))
INLINE u64 next(u64 *s)
{
\tu64 z = *s += 0x9e3779b97f4a7c15;
\tz = (z ^ z >> 29) * 0xbf58476d1ce4e5b9;
\treturn z ^ z >> 32;
}
INLINE u64 mix(u64 h, u64 x) { return (h ^ x) * 0x100000001b3 ^ h >> 47; }
typedef enum { ONE, MANY = 70000 } choice;
typedef long double wide;
typedef __float128 quad;
typedef _Complex float complex_float;
typedef _Complex double complex_double;
typedef _Complex long double complex_wide;
typedef void *pointer;
typedef __int128 int128;
typedef unsigned char byte;
typedef signed char sbyte;
typedef unsigned short ushort16;
typedef unsigned int uint32;
";

/// Types without parts: name, bytes, what makes one (`*x` from `*s`), what sums it up, whether it may stand for `...`.
const NUMBERS: [(&str, u64, &str, &str, bool); 21] = [
    ("char", 1, "*x = next(s);", "*x", false),
    ("sbyte", 1, "*x = next(s);", "*x", false),
    ("byte", 1, "*x = next(s);", "*x", false),
    ("_Bool", 1, "*x = next(s) & 1;", "*x", false),
    ("short", 2, "*x = next(s);", "*x", false),
    ("ushort16", 2, "*x = next(s);", "*x", false),
    ("int", 4, "*x = next(s);", "*x", true),
    ("uint32", 4, "*x = next(s);", "*x", true),
    ("choice", 4, "*x = next(s) & 0xffff;", "*x", true),
    ("long", 8, "*x = next(s);", "*x", true),
    ("u64", 8, "*x = next(s);", "*x", true),
    ("pointer", 8, "*x = (void *)next(s);", "(u64)*x", true),
    ("float", 4, "*x = (int)(next(s) % 1000000);", "(long)*x", false),
    ("double", 8, "*x = (int)next(s);", "(long)*x", true),
    ("wide", 16, "*x = (long)next(s);", "(long)*x", true),
    (
        "int128",
        16,
        "u64 v = next(s); *x = (unsigned __int128)v << 64 | next(s);",
        "mix(*x, *x >> 64)",
        true,
    ),
    (
        "quad",
        16,
        "u64 v[2]; v[0] = next(s); v[1] = next(s); __builtin_memcpy(x, v, 16);",
        "({ u64 v[2]; __builtin_memcpy(v, x, 16); mix(v[0], v[1]); })",
        true,
    ),
    (
        "complex_float",
        8,
        "__real__ *x = (int)(next(s) % 1000000); __imag__ *x = (int)(next(s) % 1000000);",
        "mix((long)__real__ *x, (long)__imag__ *x)",
        true,
    ),
    (
        "complex_double",
        16,
        "__real__ *x = (int)next(s); __imag__ *x = (int)next(s);",
        "mix((long)__real__ *x, (long)__imag__ *x)",
        true,
    ),
    (
        "complex_wide",
        32,
        "__real__ *x = (long)next(s); __imag__ *x = (long)next(s);",
        "mix((long)__real__ *x, (long)__imag__ *x)",
        true,
    ),
    ("empty", 0, "", "0", false),
];

/// Bytes of arguments that `...` may stand for: the words that a thunk copies behind those with names.
const UNNAMED_BYTES: u64 = 8 * 64;
/// Structures and unions of a batch.
const TYPES: usize = 40;

fn functions_of(name: &str, make: &str, sum: &str) -> String {
    format!(
        "INLINE void make_{name}({name} *x, u64 *s) {{ {make} }}\nINLINE u64 sum_{name}(const {name} *x) {{ return {sum}; }}\n"
    )
}

impl Batch {
    /// The batch of a number under a seed, of so many functions.
    pub fn new(seed: u64, index: u64, count: usize) -> Self {
        let mut random = Random::at(seed, index);
        let mut batch = Self {
            seed: random.word(),
            types: Vec::new(),
            definitions: String::from("typedef struct {} empty;\n"),
            functions: Vec::new(),
        };
        for (name, bytes, make, sum, unnamed) in NUMBERS {
            batch.definitions += &functions_of(name, make, sum);
            batch.types.push(Type {
                name: name.into(),
                bytes,
                leaves: 1,
                unnamed,
            });
        }
        for _ in 0..TYPES {
            batch.add_type(&mut random);
        }
        for _ in 0..count {
            let function = batch.function(&mut random);
            batch.functions.push(function);
        }
        batch
    }

    fn add_type(&mut self, random: &mut Random) {
        let name = format!("t{}", self.types.len());
        let union = random.one_in(5);
        let packed = random.one_in(6);
        let long = random.one_in(12);
        let fields = if union {
            2 + random.below(2)
        } else {
            1 + random.below(5)
        };
        let (mut body, mut make, mut sum) = (String::new(), String::new(), String::from("u64 h = 7; "));
        let (mut bytes, mut leaves) = (0, 0);
        for field in 0..fields {
            // Of a union only the first field is made and looked at; it is often the widest.
            let seen = !union || field == 0;
            if !union && random.one_in(6) {
                let (kind, most) = [
                    ("int", 32),
                    ("uint32", 32),
                    ("long", 64),
                    ("ushort16", 16),
                    ("_Bool", 1),
                ][random.below(5) as usize];
                let bits = 1 + random.below(most);
                let _ = write!(body, "{kind} f{field} : {bits}; ");
                if random.one_in(8) {
                    body += "int : 0; ";
                }
                let _ = write!(make, "x->f{field} = next(s); ");
                let _ = write!(sum, "h = mix(h, x->f{field}); ");
                bytes += 16;
                leaves += 1;
                continue;
            }
            let kind = self.pick(random, 8).clone();
            let elements = if long && !union {
                2 + random.below(40)
            } else {
                1 + random.below(3)
            };
            let array = long || random.one_in(5);
            let (each, element) = if array {
                let _ = write!(body, "{} f{field}[{elements}]; ", kind.name);
                (format!("for (int i = 0; i < {elements}; i++)"), format!("f{field}[i]"))
            } else {
                let _ = write!(body, "{} f{field}; ", kind.name);
                (String::new(), format!("f{field}"))
            };
            if seen {
                let name = &kind.name;
                let _ = write!(make, "{each} {{ {name} v; make_{name}(&v, s); x->{element} = v; }} ");
                let _ = write!(
                    sum,
                    "{each} {{ {name} v = x->{element}; h = mix(h, sum_{name}(&v)); }} "
                );
                leaves += kind.leaves;
            }
            let own = (kind.bytes + 16) * if array { elements } else { 1 };
            bytes = if union { own.max(bytes) } else { bytes + own };
        }
        let keyword = if union { "union" } else { "struct" };
        let attribute = match (packed, random.one_in(20)) {
            (true, _) => " __attribute__((packed))",
            (false, true) => " __attribute__((aligned(16)))",
            _ => "",
        };
        let _ = writeln!(self.definitions, "typedef {keyword}{attribute} {{ {body}}} {name};");
        self.definitions += &functions_of(&name, &make, &format!("({{ {sum}h; }})"));
        self.types.push(Type {
            name,
            bytes: bytes + 16,
            leaves,
            unnamed: true,
        });
    }

    /// A type of few numbers: one without parts about every other time.
    fn pick(&self, random: &mut Random, leaves_max: u64) -> &Type {
        &self.types[self.pick_number(random, leaves_max)]
    }

    fn pick_number(&self, random: &mut Random, leaves_max: u64) -> usize {
        loop {
            let all = if random.one_in(2) {
                NUMBERS.len()
            } else {
                self.types.len()
            };
            let number = random.below(all as u64) as usize;
            let empty = self.types[number].name == "empty" && !random.one_in(3);
            if self.types[number].leaves <= leaves_max && !empty {
                return number;
            }
        }
    }

    fn function(&self, random: &mut Random) -> Function {
        let count = match random.below(4) {
            0 => random.below(4),
            1 => random.below(20),
            _ => 3 + random.below(8),
        };
        let mut named: Vec<usize> = (0..count).map(|_| self.pick_number(random, 24)).collect();
        let mut unnamed = None;
        if random.one_in(4) {
            if named.is_empty() {
                named.push(6);
            }
            let (mut list, mut bytes) = (Vec::new(), 0);
            for _ in 0..random.below(16) {
                let kind = self.pick_number(random, 24);
                let own = self.types[kind].bytes.next_multiple_of(16);
                if self.types[kind].unnamed && bytes + own <= UNNAMED_BYTES {
                    bytes += own;
                    list.push(kind);
                }
            }
            unnamed = Some(list);
        }
        Function {
            result: self.pick_number(random, 24),
            named,
            unnamed,
        }
    }

    fn name(&self, kind: usize) -> &str {
        &self.types[kind].name
    }

    fn seed_of(&self, index: usize) -> u64 {
        self.seed ^ (index as u64) << 32
    }

    /// The parameters of a function, with names.
    fn parameters(&self, index: usize) -> String {
        let function = &self.functions[index];
        let mut list: Vec<String> = function
            .named
            .iter()
            .enumerate()
            .map(|(place, kind)| format!("{} a{place}", self.name(*kind)))
            .collect();
        if function.unnamed.is_some() {
            list.push("...".into());
        }
        if list.is_empty() {
            list.push("void".into());
        }
        list.join(", ")
    }

    /// A function that looks at what it was given.
    fn taker(&self, index: usize, linkage: &str, name: &str) -> String {
        let function = &self.functions[index];
        let result = self.name(function.result);
        let seed = self.seed_of(index);
        let mut text = format!("{linkage}{result} {name}({})\n{{\n", self.parameters(index));
        let _ = writeln!(text, "\tu64 state = {seed}ul, *s = &state;\n\t{result} r;\n\tcalls++;");
        for (place, kind) in function.named.iter().enumerate() {
            let kind = self.name(*kind);
            let _ = writeln!(
                text,
                "\t{{ {kind} e; make_{kind}(&e, s); wrong |= sum_{kind}(&e) != sum_{kind}(&a{place}); }}"
            );
        }
        if let Some(unnamed) = &function.unnamed {
            let _ = writeln!(
                text,
                "\tva_list list;\n\tva_start(list, a{});",
                function.named.len() - 1
            );
            for kind in unnamed {
                let kind = self.name(*kind);
                let _ = writeln!(
                    text,
                    "\t{{ {kind} e, v = va_arg(list, {kind}); make_{kind}(&e, s); wrong |= sum_{kind}(&e) != sum_{kind}(&v); }}"
                );
            }
            text += "\tva_end(list);\n";
        }
        let _ = writeln!(text, "\tmake_{result}(&r, s);\n\treturn r;\n}}");
        text
    }

    /// A function that calls `callee`, and tells whether the result is another than expected.
    fn giver(&self, index: usize, head: &str, callee: &str) -> String {
        let function = &self.functions[index];
        let result = self.name(function.result);
        let seed = self.seed_of(index);
        let mut text = format!("{head}\n{{\n\tu64 state = {seed}ul, *s = &state;\n\t{result} e, r;\n");
        let all = function.named.iter().chain(function.unnamed.iter().flatten());
        let mut list = Vec::new();
        for (place, kind) in all.enumerate() {
            let kind = self.name(*kind);
            let _ = writeln!(text, "\t{kind} a{place}; make_{kind}(&a{place}, s);");
            list.push(format!("a{place}"));
        }
        let _ = writeln!(text, "\tr = {callee}({});\n\tmake_{result}(&e, s);", list.join(", "));
        let _ = writeln!(text, "\treturn sum_{result}(&e) != sum_{result}(&r);\n}}");
        text
    }

    /// `types.h`: for all sources.
    pub fn types(&self) -> String {
        let mut text = format!("{START}{}", self.definitions);
        for (index, function) in self.functions.iter().enumerate() {
            let (result, parameters) = (self.name(function.result), self.parameters(index));
            let _ = writeln!(text, "typedef {result} (*p{index})({parameters});");
            let _ = writeln!(
                text,
                "{result} f{index}({parameters});\nint call{index}(p{index} back);"
            );
        }
        text += "int take_wrong(void);\nvoid report(int index, int kind);\nvoid from_outside(void **table);\n";
        text
    }

    /// The exports of the library, as lines of its description.
    pub fn exports(&self) -> Vec<String> {
        let mut list = vec!["take_wrong".to_string()];
        for (index, function) in self.functions.iter().enumerate() {
            let variadic = if function.unnamed.is_some() { " variadic" } else { "" };
            list.push(format!("f{index}{variadic}"));
            list.push(format!("call{index}"));
        }
        list
    }

    /// `library.c`: takes, and calls back.
    pub fn library(&self) -> String {
        let mut text = String::from("#include \"types.h\"\nstatic u64 calls;\nstatic int wrong;\n");
        text += "int take_wrong(void) { int was = wrong; wrong = 0; return was; }\n";
        for index in 0..self.functions.len() {
            text += &self.taker(index, "", &format!("f{index}"));
            text += &self.giver(index, &format!("int call{index}(p{index} back)"), "back");
        }
        text
    }

    /// `client.c`: calls what the library has but for the functions left out.
    pub fn client(&self, left_out: &BTreeSet<String>) -> String {
        let mut text = String::from("#include \"types.h\"\nstatic u64 calls;\nstatic int wrong;\n");
        let mut body = String::new();
        for index in 0..self.functions.len() {
            // What clang makes of a function that calls back may need the register, too.
            if ["f", "call"]
                .iter()
                .any(|name| left_out.contains(&format!("{name}{index}")))
            {
                continue;
            }
            text += &self.taker(index, "static ", &format!("back{index}"));
            let head = format!("static NEVER_INLINE int direct{index}(void)");
            text += &self.giver(index, &head, &format!("f{index}"));
            let head = format!("static NEVER_INLINE int pointed{index}(p{index} target)");
            text += &self.giver(index, &head, "target");
            let _ = writeln!(
                body,
                "\treport({index}, -1);\n\tif (direct{index}()) report({index}, 0);\n\tif (take_wrong()) report({index}, 1);\n\
                 \tif (pointed{index}(f{index})) report({index}, 2);\n\tif (take_wrong()) report({index}, 3);\n\
                 \tif (call{index}(back{index})) report({index}, 4);\n\tif (wrong) {{ wrong = 0; report({index}, 5); }}\n\
                 \ttable[{}] = f{index};\n\ttable[{}] = call{index};",
                2 * index + 1,
                2 * index + 2
            );
        }
        let words = 2 * self.functions.len() + 1;
        let _ = writeln!(
            text,
            "static void *table[{words}];\nint start(void)\n{{\n\ttable[0] = take_wrong;\n{body}"
        );
        text += "\tfrom_outside(table);\n\treport(-1, 0);\n\treturn 0;\n}\n";
        text
    }

    /// `shared.c`: the host's side, which is no module.
    pub fn shared(&self) -> String {
        let mut text = String::from("#include \"types.h\"\n#include <stdio.h>\nstatic u64 calls;\nstatic int wrong;\n");
        text += "void report(int index, int kind)\n{\n\tif (index < 0) printf(\"end\\n\");\n\
                 \telse if (kind < 0) printf(\"at %d\\n\", index);\n\
                 \telse printf(\"%d %d\\n\", index, kind);\n\tfflush(stdout);\n}\n";
        let mut body = String::new();
        for index in 0..self.functions.len() {
            text += &self.taker(index, "static ", &format!("back{index}"));
            let head = format!("static NEVER_INLINE int pointed{index}(p{index} target)");
            text += &self.giver(index, &head, "target");
            let (one, two) = (2 * index + 1, 2 * index + 2);
            let _ = writeln!(
                body,
                "\tif (table[{one}]) {{\n\t\treport({index}, -1);\n\t\tif (pointed{index}(table[{one}])) report({index}, 6);\n\
                 \t\tif (take()) report({index}, 7);\n\t\tif (((int (*)(p{index}))table[{two}])(back{index})) report({index}, 8);\n\
                 \t\tif (wrong) {{ wrong = 0; report({index}, 9); }}\n\t}}"
            );
        }
        let _ = writeln!(
            text,
            "void from_outside(void **table)\n{{\n\tint (*take)(void) = table[0];\n{body}}}"
        );
        text
    }
}
