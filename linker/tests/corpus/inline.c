/* Inline calls, as the headers of `gond module header` write them, in short: of an import and of a procedure. */
static int count;
static struct { const void *entry; void *data; } procedure;

static long back(long n) { return count += n; }
static inline __attribute__((always_inline)) void *own(void)
{
	void *own;

	__asm__("movq %%rbx, %0" : "=r"(own));
	return own;
}
long inline_entry(long n)
{
	register long result __asm__("rax");
	register long first __asm__("rdi") = n;

	count++;
	__asm__ volatile("movq other.data(%[own]), %%rbx\n\tcall *other.entry(%[own])\n\tmovq %[own], %%rbx"
			 : "=&r"(result), "+&r"(first) : [own] "r"(own())
			 : "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "memory");
	return result;
}
long inline_back(long n)
{
	register const void *word __asm__("rax") = &procedure;
	register long first __asm__("rdi") = n;

	__asm__("leaq %c1.entry(%%rip), %0" : "=r"(procedure.entry) : "i"(back));
	procedure.data = own();
	__asm__ volatile("movq gond_procedure.data(%[at]), %%rbx\n\tcall *gond_procedure.entry(%[at])\n\tmovq %[own], %%rbx"
			 : [at] "+&r"(word), "+&r"(first) : [own] "r"(own())
			 : "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "memory");
	return (long)word;
}
