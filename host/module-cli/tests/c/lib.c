/* A library with private data, for the tests of modules. */
#include "lib.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int counter;
static long calls;
int exported_variable = 11;
const char *const exported_names[] = { "zero", "one", "two" };

int counter_next(void) { return ++counter; }

long sum9(long a, long b, long c, long d, long e, long f, long g, long h, long i)
{
	calls++;
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i;
}

double mixed_sum(int a, double b, long double c, struct big d, float e, struct small f, int g, int h, int i, int j, int k)
{
	calls++;
	return a + b + (double)c + (double)(d.w[0] + d.w[4]) + e + f.a + f.b + g + 10 * h + 100 * i + 1000 * j + 10000 * k;
}

struct big make_big(long start)
{
	struct big b;
	for (int i = 0; i < 5; i++)
		b.w[i] = start + i + calls * 0;
	calls++;
	return b;
}

struct pair swap_pair(struct pair p) { calls++; return (struct pair){ p.b, p.a }; }
struct mixed add_mixed(struct mixed a, struct mixed b) { calls++; return (struct mixed){ a.d + b.d, a.l + b.l }; }

__int128 wide(long a, long b, long c, long d, long e, __int128 f, long g)
{
	calls++;
	return (__int128)a + b + c + d + e + f * 2 + g;
}

int format(char *to, size_t room, const char *form, ...)
{
	va_list list;
	int n;
	calls++;
	va_start(list, form);
	n = vsnprintf(to, room, form, list);
	va_end(list);
	return n;
}

long total(int count, ...)
{
	va_list list;
	long sum = 0;
	calls++;
	va_start(list, count);
	while (count-- > 0)
		sum = sum * 3 + va_arg(list, long);
	va_end(list);
	return sum;
}

void sort_ints(int *values, size_t count, compare *how) { calls++; qsort(values, count, sizeof *values, how); }

static int down(const void *a, const void *b)
{
	calls++;
	return *(const int *)b - *(const int *)a;
}
compare *descending(void) { return down; }

static long identity(long x, void *context) { (void)context; return x + calls * 0; }
static long (*const fallback[])(long, void *) = { identity };
long apply(long (*f)(long, void *), long x, void *context)
{
	calls++;
	return (f ? f : fallback[0])(x, context);
}

void each(int count, int (*f)(int, int, int, int, int, int, int, int), long *sum)
{
	for (int i = 0; i < count; i++)
		*sum += f(i, 1, 2, 3, 4, 5, i + 6, i + 7);
	calls++;
}

int read_variable(void) { return exported_variable; }

int constant_of(int index)
{
	switch (index) {
	case 0: return 17 + exported_variable * 0;
	case 1: return 4;
	case 2: return 90;
	case 3: return -3;
	case 4: return 1 << 20;
	case 5: return 6;
	case 9: return counter * 0 + 99;
	}
	return -1;
}

void jump_out(void *where) { calls++; longjmp(where, 42); }
