/* A library with private data, in two versions: the second counts by a hundred and exports one thing more. */
#ifndef STEP
#define STEP 1
#endif
static long count;
static long *place = &count;
long counter_next(void) { return *place += STEP; }
long counter_peek(void) { return count; }
long counter_sum(long a, long b, long c, long d, long e, long f, long g, long h) { return count * 0 + a + b + c + d + e + f + 10 * g + 100 * h; }
#if STEP > 1
long counter_step(void) { return STEP; }
#endif
