/* <cpuid.h> for modules: the instruction changes rbx, which holds the address of an instance's data. The compiler's header asks
   for rbx by a constraint, which gcc refuses where the register is fixed. Here the instruction stands in a function of its own, which needs
   no data and gives rbx back. The names are those of gcc's header. */
#ifndef GOND_CPUID_H
#define GOND_CPUID_H

#include_next <cpuid.h>

static __attribute__((noinline, unused)) void gond_cpuid(unsigned leaf, unsigned part, unsigned *words)
{
	__asm__ volatile("xchgq %%rbx, %q1\n\tcpuid\n\txchgq %%rbx, %q1"
			 : "=a"(words[0]), "=&r"(words[1]), "=c"(words[2]), "=d"(words[3])
			 : "0"(leaf), "2"(part));
}

static __inline unsigned gond_cpuid_max(unsigned first, unsigned *signature)
{
	unsigned words[4];

	gond_cpuid(first, 0, words);
	if (signature)
		*signature = words[1];
	return words[0];
}

static __inline int gond_cpuid_get(unsigned leaf, unsigned part, unsigned *a, unsigned *b, unsigned *c, unsigned *d)
{
	unsigned words[4], most = gond_cpuid_max(leaf & 0x80000000, 0);

	if (most == 0 || most < leaf)
		return 0;
	gond_cpuid(leaf, part, words);
	*a = words[0], *b = words[1], *c = words[2], *d = words[3];
	return 1;
}

#undef __cpuid
#undef __cpuid_count
#define __cpuid_count(leaf, part, a, b, c, d) \
	do { \
		unsigned gond_words[4]; \
		gond_cpuid(leaf, part, gond_words); \
		(a) = gond_words[0], (b) = gond_words[1], (c) = gond_words[2], (d) = gond_words[3]; \
	} while (0)
#define __cpuid(leaf, a, b, c, d) __cpuid_count(leaf, 0, a, b, c, d)
#define __get_cpuid_max(first, signature) gond_cpuid_max(first, signature)
#define __get_cpuid(leaf, a, b, c, d) gond_cpuid_get(leaf, 0, a, b, c, d)
#define __get_cpuid_count(leaf, part, a, b, c, d) gond_cpuid_get(leaf, part, a, b, c, d)
#define __cpuidex(words, leaf, part) gond_cpuid(leaf, part, (unsigned *)(words))

#endif
