//! From a module's bytes to an image: position-independent machine code of all its functions, one
//! after another, and what the executor must know of it. Code refers to nothing by address: what is
//! imported it finds in its instance context, whose slots the executor fills by name.

use crate::layout::Layout;
use crate::module::{Module, Refusal};
use crate::refine;
use crate::translate::{self, Scratch, TrapKind};
use alloc::{boxed::Box, format, string::ToString, sync::Arc, vec::Vec};
use core::ops::Range;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, FinalizedRelocTarget, control::ControlPlane, ir};

/// Changes whenever the same module would compile to different code.
pub const COMPILER_VERSION: &str = concat!("sip ", env!("CARGO_PKG_VERSION"), ".4, cranelift 0.135");

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

/// Validates and compiles a module.
///
/// # Errors
/// A [`Refusal`] with the offset and the reason.
pub fn compile(bytes: &[u8], options: Options) -> Result<Image, Refusal> {
    let (module, bodies) = Module::parse(bytes)?;
    let layout = Layout::new(&module);
    let mut output = Output {
        image: Image {
            key: key(bytes, options),
            options,
            module: Arc::new(module),
            layout,
            code: Vec::new(),
            functions: Vec::new(),
            traps: Vec::new(),
            calls: Vec::new(),
        },
        fixups: Vec::new(),
    };
    let (optimizing, plain) = (isa(options, "speed"), isa(options, "none"));
    let mut scratch = Scratch::default();
    let mut context = Box::new(Context::new());
    let module = output.image.module.clone();
    for body in bodies {
        let index = body.0.index;
        context.clear();
        context.func.name = ir::UserFuncName::user(0, index);
        let flags = context
            .func
            .dfg
            .mem_flags
            .insert_unchecked(ir::MemFlagsData::trusted().with_readonly());
        let limit = context.func.create_global_value(ir::GlobalValueData::VMContext);
        let limit = context.func.create_global_value(ir::GlobalValueData::Load {
            base: limit,
            offset: (crate::layout::STACK_LIMIT as i32).into(),
            global_type: ir::types::I64,
            flags,
        });
        context.func.stack_limit = Some(limit);
        translate::function(&module, &layout, options, body, &mut context.func, &mut scratch)?;
        let refused = |reason| Refusal::Backend {
            function: index,
            reason,
        };
        context
            .optimize(&*optimizing, &mut ControlPlane::default())
            .map_err(|error| refused(format!("{error:?}")))?;
        context.compute_loop_analysis();
        refine::after(&mut context.func, &context.domtree, &context.loop_analysis);
        context
            .compile(&*plain, &mut ControlPlane::default())
            .map_err(|error| refused(format!("{:?}", error.inner)))?;
        output.add(&context).map_err(refused)?;
    }
    output.link()?;
    Ok(output.image)
}

struct Output {
    image: Image,
    /// (place in the code, function).
    fixups: Vec<(u32, u32, i64)>,
}

impl Output {
    fn add(&mut self, context: &Context) -> Result<(), alloc::string::String> {
        let compiled = context.compiled_code().ok_or_else(|| "no code".to_string())?;
        let image = &mut self.image;
        let start = image.code.len().next_multiple_of(16);
        image.code.resize(start, 0xcc);
        let start = start as u32;
        image.code.extend_from_slice(compiled.code_buffer());
        image.functions.push(start..image.code.len() as u32);
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
            let kind = TrapKind::from_cranelift(trap.code).ok_or_else(|| "unknown trap".to_string())?;
            image.traps.push(TrapSite {
                code: start + trap.offset,
                kind,
                wasm: wasm_at(trap.offset),
            });
        }
        for call in compiled.buffer.call_sites() {
            image.calls.push((start + call.ret_addr, wasm_at(call.ret_addr - 1)));
        }
        for reloc in compiled.buffer.relocs() {
            let FinalizedRelocTarget::ExternalName(ir::ExternalName::User(name)) = &reloc.target else {
                return Err(format!("relocation {:?}", reloc.target));
            };
            if reloc.kind != Reloc::X86CallPCRel4 && reloc.kind != Reloc::X86PCRel4 {
                return Err(format!("relocation {:?}", reloc.kind));
            }
            let name = &context.func.params.user_named_funcs()[*name];
            self.fixups.push((start + reloc.offset, name.index, reloc.addend));
        }
        Ok(())
    }

    fn link(&mut self) -> Result<(), Refusal> {
        let image = &mut self.image;
        for (place, function, addend) in self.fixups.drain(..) {
            let own = function as usize - image.module.imported_functions;
            let target = i64::from(image.functions[own].start) + addend - i64::from(place);
            let target = i32::try_from(target).map_err(|_| Refusal::Backend {
                function,
                reason: "code over 2 GiB".to_string(),
            })?;
            image.code[place as usize..place as usize + 4].copy_from_slice(&target.to_le_bytes());
        }
        image.traps.sort_unstable_by_key(|site| site.code);
        image.calls.sort_unstable();
        Ok(())
    }
}
