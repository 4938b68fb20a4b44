#include "inline.h"
#include "gond_inline.h"
#include <stdarg.h>

GOND_CALLER_4(call_step, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t)

int in_variable = 5;
static int count = 100;

int in_count(void) { return ++count; }
void in_set(int to) { count = to; }
long in_six(long a, int b, unsigned short c, signed char d, bool e, const char *f)
{
	return count + a + 10 * b + 100 * c + 1000 * d + 10000 * e + 100000 * f[0];
}
double in_mixed(double a, int b, float c, long d, double e) { return count + a + b + c + (double)d + e; }
float in_half(float a) { return count == -1 ? 0 : a / 2; }
short in_short(int a) { return (short)(a + count); }
bool in_odd(int a) { return ((a + count) & 1) != 0; }
const char *in_name(int which)
{
	static const char *const names[] = {"zero", "one"};

	count++;
	return names[which];
}
int in_aligned(void) { return count != 0 && ((uintptr_t)__builtin_frame_address(0) & 15) == 0; }
/* Changes what any function may change, and what lies below the stack pointer of a caller that did not see the call. */
void in_spoil(void)
{
	volatile long below[64];

	for (int i = 0; i < 64; i++)
		below[i] = -1;
	count = (int)below[5] + count + 1;
	__asm__ volatile("xorl %%eax, %%eax\n\tmovl $-1, %%ecx\n\tmovl $-1, %%edx\n\tmovl $-1, %%esi\n\tmovl $-1, %%edi\n\t"
			 "movl $-1, %%r8d\n\tmovl $-1, %%r9d\n\tmovl $-1, %%r10d\n\tmovl $-1, %%r11d\n\t"
			 "pxor %%xmm0, %%xmm0\n\tpxor %%xmm1, %%xmm1\n\tpxor %%xmm7, %%xmm7\n\tpxor %%xmm8, %%xmm8\n\t"
			 "pxor %%xmm15, %%xmm15"
			 : : : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm7",
			 "xmm8", "xmm15", "cc");
}
uint64_t in_each(uint64_t from, uint64_t to, step *how)
{
	uint64_t sum = (uint64_t)count;

	for (; from < to; from++)
		sum += how(from, 1, 2, 3);
	return sum;
}
uint64_t in_each_of(uint64_t from, uint64_t to, const void *procedure)
{
	uint64_t sum = (uint64_t)count;

	for (; from < to; from++)
		sum += call_step(procedure, from, 1, 2, 3);
	return sum;
}
void longjmp(void *, int) __attribute__((noreturn));
void in_jump(void *where)
{
	count += 7;
	longjmp(where, count);
}
long in_seven(long a, long b, long c, long d, long e, long f, long g) { return count + a + b + c + d + e + f + g; }
struct two in_two(long a) { return (struct two){a, count}; }
int in_sum(int n, ...)
{
	va_list list;
	int sum = count;

	va_start(list, n);
	while (n-- > 0)
		sum += va_arg(list, int);
	va_end(list);
	return sum;
}
long in_pure(long a) { return a * 3; }
