//! From a module's bytes to an image: position-independent machine code of all its functions, one
//! after another, and what the executor must know of it. Code refers to nothing by address: what is
//! imported it finds in its instance context, whose slots the executor fills by name.

use crate::layout::Layout;
use crate::module::{Body, Module, Refusal};
use crate::refine;
use crate::translate::{self, Scratch, TrapKind};
use crate::verify;
use alloc::string::{String, ToString};
use alloc::{boxed::Box, format, sync::Arc, vec::Vec};
use core::ops::Range;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, FinalizedRelocTarget, control::ControlPlane, ir};

/// Changes whenever the same module would compile to different code.
pub const COMPILER_VERSION: &str = concat!("sip ", env!("CARGO_PKG_VERSION"), ".5, cranelift 0.135");

/// How memory accesses are kept inside a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Bounds {
    /// By the reservation: no 32-bit index reaches beyond it, and what is not memory is not mapped.
    #[default]
    Guard,
    /// By a comparison before each access.
    Explicit,
}

/// Which instructions the code may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Cpu {
    /// SSE4.2 and POPCNT: what every x86-64 of the last fifteen years has.
    #[default]
    V2,
    /// Also AVX, AVX2, BMI1, BMI2 and LZCNT.
    V3,
}

/// The options of the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Options {
    /// Guard pages or comparisons.
    pub bounds: Bounds,
    /// Instruction set.
    pub cpu: Cpu,
}

/// Why an instruction may trap, and where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrapSite {
    /// Offset of the instruction in the code.
    pub code: u32,
    /// Why it traps.
    pub kind: TrapKind,
    /// Offset of the WebAssembly instruction in the module.
    pub wasm: u32,
}

/// A compiled module.
#[derive(Clone, Debug)]
pub struct Image {
    /// Hash of the module's bytes, the options and the compiler's version.
    pub key: [u8; 32],
    /// How it was compiled.
    pub options: Options,
    /// Everything but the bodies.
    pub module: Arc<Module>,
    /// Layout of the instance context.
    pub layout: Layout,
    /// Machine code and its constants.
    pub code: Vec<u8>,
    /// The place in the code of each function that the module defines.
    pub functions: Vec<Range<u32>>,
    /// Instructions that trap, by ascending offset.
    pub traps: Vec<TrapSite>,
    /// Return addresses of calls and the WebAssembly offsets of the calls, by ascending offset.
    pub calls: Vec<(u32, u32)>,
}

impl Image {
    /// The origin of the code at this offset, if it may trap.
    pub fn trap_at(&self, code: u32) -> Option<TrapSite> {
        self.traps
            .binary_search_by_key(&code, |site| site.code)
            .ok()
            .map(|at| self.traps[at])
    }
}

/// The key under which a module's image is kept.
pub fn key(bytes: &[u8], options: Options) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{COMPILER_VERSION} {options:?}\0").as_bytes());
    hasher.update(bytes);
    *hasher.finalize().as_bytes()
}

/// The target that code is made for. `level` is how it is optimized: once, before what stands behind the optimizer.
fn isa(options: Options, level: &str) -> OwnedTargetIsa {
    let mut shared = settings::builder();
    let fixed = [
        ("opt_level", level),
        ("enable_probestack", "false"),
        ("preserve_frame_pointers", "true"),
        ("unwind_info", "false"),
        ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
        ("enable_heap_access_spectre_mitigation", "false"),
        ("enable_table_access_spectre_mitigation", "false"),
    ];
    for (name, value) in fixed {
        shared.set(name, value).expect("a setting of this Cranelift");
    }
    let triple = target_lexicon::triple!("x86_64-unknown-none-elf");
    let mut builder = cranelift_codegen::isa::lookup(triple).expect("built with the x86 back end");
    let mut enable = |names: &[&str]| {
        for name in names {
            builder.enable(name).expect("a setting of this Cranelift");
        }
    };
    enable(&[
        "has_sse3",
        "has_ssse3",
        "has_sse41",
        "has_sse42",
        "has_popcnt",
        "has_cmpxchg16b",
    ]);
    if options.cpu == Cpu::V3 {
        enable(&["has_avx", "has_avx2", "has_bmi1", "has_bmi2", "has_lzcnt"]);
    }
    builder
        .finish(settings::Flags::new(shared))
        .expect("settings fit together")
}

/// How a function is compiled: first fast, and then again each time that it is not proved, with less to go wrong.
///
/// Nothing but the verifier says what code may run, so what the passes and the optimizer make is not refused by
/// mistake alone: also where they are right the proof may not follow them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Care {
    /// With the passes of [`crate::refine`] and Cranelift's optimizer.
    Fast,
    /// With neither: each instruction as the module has it.
    Plain,
    /// So, and each index is compared with the memory's length right before the access, also in guard mode.
    Compared,
}

/// Validates and compiles a module. What the verifier does not prove is compiled again, with more [`Care`].
///
/// # Errors
/// A [`Refusal`] with the offset and the reason.
pub fn compile(bytes: &[u8], options: Options) -> Result<Image, Refusal> {
    compile_judged(bytes, options, |image, _| {
        // What contradicts itself as a whole has no functions to blame: the verifier will say so again.
        let refused = verify::refused(image).unwrap_or_default();
        refused.into_iter().map(|(function, _)| function).collect()
    })
}

/// As [`compile`], with another judge: of an image all of whose functions have at most this care it says which are to be
/// compiled again with more, by their numbers among those that the module defines.
///
/// # Errors
/// A [`Refusal`] with the offset and the reason.
pub fn compile_judged(
    bytes: &[u8],
    options: Options,
    mut judge: impl FnMut(&Image, Care) -> Vec<usize>,
) -> Result<Image, Refusal> {
    let (module, bodies) = Module::parse(bytes)?;
    let layout = Layout::new(&module);
    let empty = Image {
        key: key(bytes, options),
        options,
        module: Arc::new(module),
        layout,
        code: Vec::new(),
        functions: Vec::new(),
        traps: Vec::new(),
        calls: Vec::new(),
    };
    let mut maker = Maker::new(empty.module.clone(), layout, options);
    let mut pieces = Vec::new();
    for body in &bodies {
        pieces.push(maker.function(body, Care::Fast)?);
    }
    let mut image = link(empty.clone(), &pieces)?;
    // With explicit bounds the last two are the same.
    let steps = match options.bounds {
        Bounds::Guard => &[(Care::Fast, Care::Plain), (Care::Plain, Care::Compared)][..],
        Bounds::Explicit => &[(Care::Fast, Care::Plain)],
    };
    for &(before, care) in steps {
        let again = judge(&image, before);
        if again.is_empty() {
            break;
        }
        for at in again {
            if let (Some(piece), Some(body)) = (pieces.get_mut(at), bodies.get(at)) {
                *piece = maker.function(body, care)?;
            }
        }
        image = link(empty.clone(), &pieces)?;
    }
    Ok(image)
}

/// A compiled function. Offsets are from its start.
struct Piece {
    code: Vec<u8>,
    traps: Vec<TrapSite>,
    calls: Vec<(u32, u32)>,
    /// Places of addresses of functions, the functions, and what is added.
    fixups: Vec<(u32, u32, i64)>,
}

/// Makes functions.
struct Maker {
    module: Arc<Module>,
    layout: Layout,
    options: Options,
    optimizing: OwnedTargetIsa,
    plain: OwnedTargetIsa,
    scratch: Scratch,
    context: Box<Context>,
}

impl Maker {
    fn new(module: Arc<Module>, layout: Layout, options: Options) -> Self {
        Self {
            module,
            layout,
            options,
            optimizing: isa(options, "speed"),
            plain: isa(options, "none"),
            scratch: Scratch::default(),
            context: Box::new(Context::new()),
        }
    }

    fn function(&mut self, body: &Body<'_>, care: Care) -> Result<Piece, Refusal> {
        let index = body.0.index;
        let refused = |reason| Refusal::Backend {
            function: index,
            reason,
        };
        let mut options = self.options;
        if care == Care::Compared {
            options.bounds = Bounds::Explicit;
        }
        let context = &mut *self.context;
        context.clear();
        context.func.name = ir::UserFuncName::user(0, index);
        let flags = ir::MemFlagsData::trusted().with_readonly();
        let flags = context.func.dfg.mem_flags.insert_unchecked(flags);
        let limit = context.func.create_global_value(ir::GlobalValueData::VMContext);
        let limit = context.func.create_global_value(ir::GlobalValueData::Load {
            base: limit,
            offset: (crate::layout::STACK_LIMIT as i32).into(),
            global_type: ir::types::I64,
            flags,
        });
        context.func.stack_limit = Some(limit);
        let function = &mut context.func;
        let noted = translate::function(&self.module, &self.layout, options, body, function, &mut self.scratch)?;
        if care == Care::Fast {
            noted.refine(function, options);
            context
                .optimize(&*self.optimizing, &mut ControlPlane::default())
                .map_err(|error| refused(format!("{error:?}")))?;
            context.compute_loop_analysis();
            refine::after(&mut context.func, &context.domtree, &context.loop_analysis);
        }
        context
            .compile(&*self.plain, &mut ControlPlane::default())
            .map_err(|error| refused(format!("{:?}", error.inner)))?;
        Piece::new(context).map_err(refused)
    }
}

impl Piece {
    fn new(context: &Context) -> Result<Self, String> {
        let compiled = context.compiled_code().ok_or("no code")?;
        let mut piece = Self {
            code: compiled.code_buffer().to_vec(),
            traps: Vec::new(),
            calls: Vec::new(),
            fixups: Vec::new(),
        };
        // Source locations by code offset, to name the WebAssembly instruction of each trap.
        let locations = compiled.buffer.get_srclocs_sorted();
        let wasm_at = |offset: u32| {
            let at = locations.partition_point(|location| location.end <= offset);
            locations
                .get(at)
                .filter(|location| location.start <= offset)
                .map_or(0, |location| location.loc.bits())
        };
        for trap in compiled.buffer.traps() {
            piece.traps.push(TrapSite {
                code: trap.offset,
                kind: TrapKind::from_cranelift(trap.code).ok_or("unknown trap")?,
                wasm: wasm_at(trap.offset),
            });
        }
        for call in compiled.buffer.call_sites() {
            piece.calls.push((call.ret_addr, wasm_at(call.ret_addr - 1)));
        }
        for reloc in compiled.buffer.relocs() {
            let FinalizedRelocTarget::ExternalName(ir::ExternalName::User(name)) = &reloc.target else {
                return Err(format!("relocation {:?}", reloc.target));
            };
            if reloc.kind != Reloc::X86CallPCRel4 && reloc.kind != Reloc::X86PCRel4 {
                return Err(format!("relocation {:?}", reloc.kind));
            }
            let name = &context.func.params.user_named_funcs()[*name];
            piece.fixups.push((reloc.offset, name.index, reloc.addend));
        }
        Ok(piece)
    }
}

/// Lays functions one after another, and makes them find each other.
fn link(mut image: Image, pieces: &[Piece]) -> Result<Image, Refusal> {
    for piece in pieces {
        let start = image.code.len().next_multiple_of(16);
        image.code.resize(start, 0xcc);
        image.code.extend_from_slice(&piece.code);
        let start = start as u32;
        image.functions.push(start..image.code.len() as u32);
        let moved = |site: &TrapSite| TrapSite {
            code: start + site.code,
            ..*site
        };
        image.traps.extend(piece.traps.iter().map(moved));
        image
            .calls
            .extend(piece.calls.iter().map(|(at, wasm)| (start + at, *wasm)));
    }
    for (piece, at) in pieces.iter().zip(image.functions.clone()) {
        for (place, function, addend) in &piece.fixups {
            let place = at.start + place;
            let own = *function as usize - image.module.imported_functions;
            let target = i64::from(image.functions[own].start) + addend - i64::from(place);
            let target = i32::try_from(target).map_err(|_| Refusal::Backend {
                function: *function,
                reason: "code over 2 GiB".to_string(),
            })?;
            image.code[place as usize..place as usize + 4].copy_from_slice(&target.to_le_bytes());
        }
    }
    image.traps.sort_unstable_by_key(|site| site.code);
    image.calls.sort_unstable();
    Ok(image)
}
