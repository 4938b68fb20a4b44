/* Calls argslib with arguments that are hard to find, and from a stack that ends where memory ends. */
#define _GNU_SOURCE
#include "argslib.h"
#include <sys/mman.h>
#include <ucontext.h>

static long runs;

#define WANT(what) \
	do { \
		if (!(what)) \
			return __LINE__; \
	} while (0)

static long expected(const long *words, int count)
{
	long sum = 0;

	for (int i = 0; i < count; i++)
		sum = sum * 3 + words[i];
	return sum;
}

int check(void)
{
	struct large large;
	long words[72];
	union with_float narrow;
	union with_longs pair = { .narrow = { 6, 60 } };
	_Complex long double complex;
	_Complex double small;
	union outer o = { .word = { 1, 10 } };
	struct packed p = { 1, 2 };
	struct fields f = { 3, 4, 5 };

	runs++;
	for (int i = 0; i < 72; i++)
		words[i] = i * 7 + 1;
	for (int i = 0; i < 60; i++)
		large.word[i] = words[i];
	WANT(sum_behind(large, words[60], words[61], words[62], words[63], words[64], words[65], words[66], words[67],
			words[68], words[69], words[70], words[71]) == expected(words, 72));
	narrow = float_of(1, 2, 3, 4, 5, 6, 7);
	WANT(narrow.wide == 140);
	WANT(double_of(1, 2, 3, 4, 5, 6, 7).wide == 140);
	WANT(long_of(1, 2, 3, 4, 5, 6, 7).wide == 140);
	pair = longs_of(1, 2, 3, 4, 5, pair, 7);
	WANT(pair.narrow[0] == 140 && pair.narrow[1] == 60);
	complex = complex_of(1, 2, 3, 4, 5, 6, 7);
	WANT(__real__ complex == 55 && __imag__ complex == 85);
	WANT(packed_of(p, p, p, p, p, p, 9) == 42 + 63);
	WANT(fields_of(f, f, f, f, f, f, f, 9) == 3 + 8 + 15 + 12 + 20 + 18 + 35 + 72);
	__real__ small = 20;
	__imag__ small = 30;
	WANT(complexes(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 10, small, 40) == 13 + 20 + 60 + 120 + 200);
	WANT(outer_of(o, o, o, 100) == 1 + 20 + 3 + 40 + 5 + 60 + 700);
	WANT(quads(0, 1, 2, 3, 4, 5, 6, 7) == 2 + 6 + 12 + 20 + 30 + 42 + 56);
	return 0;
}

enum { PAGE = 4096 };

static long answers[8];

static void on_a_small_stack(void)
{
	long (*pointed)(long, ...) = sum_named;

	runs++;
	answers[0] = sum_named(2, 10L, 20L);
	answers[1] = pointed(8, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L);
	answers[2] = sum_named(0);
}

/* Calls from stacks that begin at every place of the last bytes before a page that nobody may read. */
int at_the_end(void)
{
	static const long few[] = { 10, 20 }, many[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	enum { BYTES = 16 * PAGE };
	char *stack = mmap(0, BYTES + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	WANT(stack != MAP_FAILED && mprotect(stack + BYTES, PAGE, PROT_NONE) == 0);
	for (int below = 0; below < 1024; below += 16) {
		ucontext_t here, there;

		WANT(getcontext(&there) == 0);
		there.uc_stack.ss_sp = stack;
		there.uc_stack.ss_size = BYTES - below;
		there.uc_link = &here;
		makecontext(&there, on_a_small_stack, 0);
		answers[0] = answers[1] = answers[2] = -1;
		WANT(swapcontext(&here, &there) == 0);
		WANT(answers[0] == expected(few, 2) && answers[1] == expected(many, 8) && answers[2] == 0);
	}
	munmap(stack, BYTES + PAGE);
	return 0;
}
