/* A client that calls the counter inline, so that it is bound before its first call; and itself, by a procedure. */
long counter_next(void);
long counter_peek(void);
long counter_sum(long, long, long, long, long, long, long, long);
#include "counter.inline.h"
GOND_CALLER_1(call_back, long, long)
static long used;
static struct gond_procedure adder;
static long add(long n) { return used += n; }
long inline_next(void) { used++; return counter_next(); }
long inline_peek(void) { return counter_peek() + used * 0; }
long inline_many(long n)
{
	long sum = 0;

	for (long i = 0; i < n; i++) {
		sum += counter_next();
		used++;
	}
	return sum;
}
long inline_sum(void) { used++; return counter_sum(1, 2, 3, 4, 5, 6, 7, 8); }
long inline_back(long n)
{
	adder = GOND_PROCEDURE(add);
	return call_back(&adder, n);
}
