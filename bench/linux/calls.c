/*
 * Cheap system calls: what it costs to enter the kernel and come back, and to look at the clock meanwhile.
 */
#include <sys/syscall.h>
#include <time.h>

#include "peer.h"

/* The bare instruction, so that the C library adds nothing. */
static inline long raw_call(long number, long a0, long a1)
{
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a0), "S"(a1) : "rcx", "r11", "memory");
	return result;
}

static void row_call(const char *name, long number, long a0, long a1)
{
	static struct samples samples;
	enum { BATCH = 1000, ROUNDS = 101 };

	if (!row_wanted(name))
		return;
	samples_begin(&samples, BATCH);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = ticks_now();

		for (int i = 0; i < BATCH; i++)
			raw_call(number, a0, a1);
		samples_add(&samples, ticks_now() - start);
	}
	row_print(name, &samples);
}

void rows_calls(void)
{
	struct timespec now;

	row_call("null-call", SYS_getpid, 0, 0);
	row_call("cheap-call", SYS_clock_gettime, CLOCK_REALTIME, (long)&now);
}
