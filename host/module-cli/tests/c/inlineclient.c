/* Calls the module `inline` inline in every way there is; as an ordinary program it calls it as usual. */
#include "inline.h"
#include "inline.inline.h"

struct buffer { long words[32]; };
int _setjmp(void *) __attribute__((returns_twice));
static int here = 1000;
static uint64_t total;
static struct gond_procedure stepper;

static uint64_t step_one(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	here++;
	total += a + b + c + d;
	/* A call back, from the callback. */
	return total + (uint64_t)in_count() * 0;
}

/* Functions that would be leaves: their locals lie below the stack pointer if nobody knows of the call. */
__attribute__((noinline)) static long leaf(long a, long b)
{
	volatile long kept[4] = {a, b, a + b, a - b};

	in_spoil();
	return kept[0] + 10 * kept[1] + 100 * kept[2] + 1000 * kept[3];
}
__attribute__((noinline)) static int leaf_aligned(void) { return in_aligned(); }
__attribute__((noinline)) static int leaf_aligned_with(long *a)
{
	long x = a[0], y = a[1], z = a[2];
	int aligned = in_aligned();

	a[0] = y + z;
	a[1] = x + z;
	a[2] = x + y;
	return aligned;
}
__attribute__((noinline)) static long double across(long double x, double y, float z)
{
	long double u = x * 2;
	double v = y * 3;
	float w = z * 5;

	in_spoil();
	return u + v + w + x;
}

/* Zero, or the line of what went wrong. */
#define EXPECT(what) do { if (!(what)) return __LINE__; } while (0)
int check(void)
{
	static const char text[] = "A";
	struct buffer where;
	long words[3] = {1, 2, 3};
	int evaluated = 0, sum = 0;
	volatile int jumped = 0, wide[] = {65536 + 3, 256 + 4, 77};

	in_set(100);
	EXPECT(in_count() == 101 && in_count() == 102);
	in_set(0);
	/* Arguments are converted as the declaration says, and evaluated once. */
	EXPECT(in_six(1, 2, wide[0], wide[1], wide[2], text) == 1 + 20 + 300 + 4000 + 10000 + 6500000);
	EXPECT(in_six(-1, -2, (unsigned short)-1, -3, false, text) == -1 - 20 + 6553500 - 3000 + 6500000);
	EXPECT(in_mixed(1.5, 2, 0.25f, -4, 8) == 7.75);
	EXPECT(in_mixed(1, evaluated++, 2, 3, 4) == 10 && evaluated == 1);
	EXPECT(in_half(3) == 1.5f);
	EXPECT(in_short(0x18000) == -32768);
	EXPECT(in_odd(3) == true && in_odd(4) == false);
	EXPECT(in_name(1)[0] == 'o' && in_name(0)[0] == 'z');
	EXPECT(in_aligned() && leaf_aligned() && leaf_aligned_with(words));
	EXPECT(words[0] == 5 && words[1] == 4 && words[2] == 3);
	EXPECT(leaf(7, 5) == 7 + 50 + 1200 + 2000);
	EXPECT(across(1.5L, 2, 3) == 3 + 6 + 15 + 1.5L);
	/* One inside the other, and in a loop with variables of this module between. */
	in_set(0);
	EXPECT(in_six(in_six(1, 0, 0, 0, 0, ""), in_count(), 0, 0, in_count() == 1 || in_count() > 0, "") > 0);
	for (int i = 0; i < 10; i++) {
		here += i;
		sum += in_odd(i + here - here) != 0;
		here -= i;
	}
	EXPECT(sum == 5 && here == 1000);
	/* Callbacks, by pointer and as procedures. */
	in_set(0);
	total = 0;
	EXPECT(in_each(0, 3, step_one) == 6 + 13 + 21 && here == 1003);
	stepper = GOND_PROCEDURE(step_one);
	total = 0;
	in_set(0);
	EXPECT(in_each_of(0, 3, &stepper) == 6 + 13 + 21 && here == 1006);
	stepper = GOND_PROCEDURE_OF(step_one);
	total = 0;
	in_set(0);
	EXPECT(in_each_of(0, 3, &stepper) == 6 + 13 + 21 && here == 1009);
	/* A jump out of the callee leaves this function with its own data. */
	in_set(0);
	if (_setjmp(&where) == 0) {
		in_jump(&where);
		EXPECT(0);
	} else {
		jumped++;
	}
	EXPECT(jumped == 1 && here == 1009 && in_count() == 8);
	/* What cannot be inline is called as before, and so is what is called by its address. */
	in_set(1);
	EXPECT(in_seven(1, 2, 3, 4, 5, 6, 7) == 29 && in_two(5).a == 5 && in_two(5).b == 1 && in_sum(2, 3, 4) == 8);
	EXPECT((in_count)() == 2 && (&in_count)() == 3 && in_variable == 5 && in_pure(5) == 15);
	here = 1000;
	return 0;
}

/* A count of each of the two modules: here * 1000 + there. */
int bump(void)
{
	int there = in_count();

	return ++here * 1000 + there;
}
