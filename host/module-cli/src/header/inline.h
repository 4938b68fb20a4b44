/* Inline calls between modules (docs/modules.md): what all headers of `gond module header` begin with. */
#ifndef GOND_INLINE_H
#define GOND_INLINE_H
/* Calls stay ordinary ones where this is no module, where a compiler cannot leave rbx alone, and where exceptions could
 * leave the callee: an inline call has no place in the tables of a function that catches or cleans up. */
#if defined(__gond_module__) && defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
	!defined(__cplusplus) && !defined(__EXCEPTIONS)
#define GOND_INLINE

#define GOND_INLINE_FUNCTION static inline __attribute__((__always_inline__, __artificial__, __unused__))

/* The data of this instance. Always the same in a function, so the compiler may keep it: it is read once for a loop. */
GOND_INLINE_FUNCTION void *gond_inline_own(void)
{
	void *own;

	__asm__ __inline__("movq %%rbx, %0" : "=r"(own));
	return own;
}

/* The call. No other statement can do it: between its instructions rbx is the callee's, so nothing of this instance may
 * be reached there. R is a register that calls preserve, because all others are named as changed. */
#define GOND_INLINE_CALL(function) \
	"movq " function ".data(%[own]), %%rbx\n\t" GOND_INLINE_SAVED \
	"call *" function ".entry(%[own])\n\tmovq %[own], %%rbx" GOND_INLINE_RESTORED
#ifdef __GCC_HAVE_DWARF2_CFI_ASM
#define GOND_INLINE_SAVED ".cfi_register %%rbx, %[own]\n\t"
#define GOND_INLINE_RESTORED "\n\t.cfi_restore %%rbx"
#else
#define GOND_INLINE_SAVED
#define GOND_INLINE_RESTORED
#endif

/* What any function may change, apart from the registers of parameters and results. */
#ifdef __AVX512F__
#define GOND_INLINE_WIDE , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", \
	"xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"
#else
#define GOND_INLINE_WIDE
#endif
#define GOND_INLINE_CHANGED "r10", "r11", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", \
	"mm0", "mm1", "mm2", "mm3", "mm4", "mm5", "mm6", "mm7", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", \
	"st(6)", "st(7)", "cc", "memory" GOND_INLINE_WIDE

/* The compiler does not see the call, and would give a function without others no aligned stack, and let it use what is
 * below the stack pointer. So it is shown another one, behind a jump that it cannot know to be none. */
#define GOND_INLINE_IS_A_CALL(never) __asm__ __inline__ goto("" : : : : never)

/* The entry of a function of this module. Nobody may call it but with the data of its instance. */
#define GOND_INLINE_ENTRY(function) __extension__ ({ \
	const void *gond_entry; \
	__asm__ __inline__("leaq %c1.entry(%%rip), %0" : "=r"(gond_entry) : "i"(function)); \
	gond_entry; })
#endif

/* A procedure: a function and the data of its instance, for callbacks that are called often. It lies in the data of who
 * offers it, and is passed by its address. GOND_PROCEDURE makes one of a function that is defined in this module;
 * GOND_PROCEDURE_OF makes one of any pointer to a function, with which nothing is gained. */
struct gond_procedure {
	const void *entry;
	void *data;
};
#define GOND_PROCEDURE_OF(pointer) ((struct gond_procedure){(const void *)(unsigned long)(pointer), 0})
#ifdef GOND_INLINE
#define GOND_PROCEDURE(function) ((struct gond_procedure){GOND_INLINE_ENTRY(function), gond_inline_own()})
#else
#define GOND_PROCEDURE(function) GOND_PROCEDURE_OF(function)
#endif

/* GOND_CALLER_N(name, result, type...) defines `result name(const struct gond_procedure *, type...)`, which calls a procedure
 * of N parameters, up to four. All types are integers or pointers, the result may be void. */
#ifdef GOND_INLINE
#define GOND_IS_WORD(type) _Static_assert(sizeof(type) <= 8 && (__builtin_classify_type((type)0) == 1 || \
	__builtin_classify_type((type)0) == 5), "a procedure takes and gives integers and pointers only")
#define GOND_IS_RESULT(type) _Static_assert(__builtin_classify_type((type)0) <= 1 || \
	__builtin_classify_type((type)0) == 5, "a procedure takes and gives integers and pointers only")
#define GOND_WORD(n, type, place) GOND_IS_WORD(type); \
	register __typeof__(1 ? (type)0 : (type)0) r##n __asm__(place) = a##n
#define GOND_CALLER(name, result, parameters, words, outputs, changed) \
GOND_INLINE_FUNCTION result name parameters \
{ \
	GOND_IS_RESULT(result); \
	register const void *word __asm__("rax") = procedure; \
	words \
	void *own = gond_inline_own(); \
	GOND_INLINE_IS_A_CALL(never); \
	__asm__ __inline__ volatile("movq gond_procedure.data(%[at]), %%rbx\n\t" GOND_INLINE_SAVED \
		"call *gond_procedure.entry(%[at])\n\tmovq %[own], %%rbx" GOND_INLINE_RESTORED \
		: [at] "+&r"(word) outputs : [own] "r"(own) : changed, "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", \
		"xmm6", "xmm7", GOND_INLINE_CHANGED); \
	return (result)(unsigned long)word; \
never: \
	((void (*)(void))(unsigned long)procedure->entry)(); \
	__builtin_unreachable(); \
}
#define GOND_LIST(...) __VA_ARGS__
#define GOND_CALLER_0(name, result) \
	GOND_CALLER(name, result, (const struct gond_procedure *procedure), , , \
		    GOND_LIST("rdi", "rsi", "rdx", "rcx", "r8", "r9"))
#define GOND_CALLER_1(name, result, t0) \
	GOND_CALLER(name, result, (const struct gond_procedure *procedure, t0 a0), GOND_WORD(0, t0, "rdi");, \
		    GOND_LIST(, "+&r"(r0)), GOND_LIST("rsi", "rdx", "rcx", "r8", "r9"))
#define GOND_CALLER_2(name, result, t0, t1) \
	GOND_CALLER(name, result, (const struct gond_procedure *procedure, t0 a0, t1 a1), \
		    GOND_WORD(0, t0, "rdi"); GOND_WORD(1, t1, "rsi");, \
		    GOND_LIST(, "+&r"(r0), "+&r"(r1)), GOND_LIST("rdx", "rcx", "r8", "r9"))
#define GOND_CALLER_3(name, result, t0, t1, t2) \
	GOND_CALLER(name, result, (const struct gond_procedure *procedure, t0 a0, t1 a1, t2 a2), \
		    GOND_WORD(0, t0, "rdi"); GOND_WORD(1, t1, "rsi"); GOND_WORD(2, t2, "rdx");, \
		    GOND_LIST(, "+&r"(r0), "+&r"(r1), "+&r"(r2)), GOND_LIST("rcx", "r8", "r9"))
#define GOND_CALLER_4(name, result, t0, t1, t2, t3) \
	GOND_CALLER(name, result, (const struct gond_procedure *procedure, t0 a0, t1 a1, t2 a2, t3 a3), \
		    GOND_WORD(0, t0, "rdi"); GOND_WORD(1, t1, "rsi"); GOND_WORD(2, t2, "rdx"); GOND_WORD(3, t3, "rcx");, \
		    GOND_LIST(, "+&r"(r0), "+&r"(r1), "+&r"(r2), "+&r"(r3)), GOND_LIST("r8", "r9"))
#else
#define GOND_CALLER(name, result, parameters, types, arguments) \
static inline __attribute__((__unused__)) result name parameters \
{ \
	return ((result (*)types)(unsigned long)procedure->entry)arguments; \
}
#define GOND_CALLER_0(name, result) \
	GOND_CALLER(name, result, (const struct gond_procedure *procedure), (void), ())
#define GOND_CALLER_1(name, result, t0) \
	GOND_CALLER(name, result, (const struct gond_procedure *procedure, t0 a0), (t0), (a0))
#define GOND_CALLER_2(name, result, t0, t1) \
	GOND_CALLER(name, result, (const struct gond_procedure *procedure, t0 a0, t1 a1), (t0, t1), (a0, a1))
#define GOND_CALLER_3(name, result, t0, t1, t2) \
	GOND_CALLER(name, result, (const struct gond_procedure *procedure, t0 a0, t1 a1, t2 a2), (t0, t1, t2), (a0, a1, a2))
#define GOND_CALLER_4(name, result, t0, t1, t2, t3) \
	GOND_CALLER(name, result, (const struct gond_procedure *procedure, t0 a0, t1 a1, t2 a2, t3 a3), (t0, t1, t2, t3), \
		    (a0, a1, a2, a3))
#endif
#endif
