/*
 * System calls that do nothing: what it costs to enter the kernel and come back.
 */
#include <sys/syscall.h>

#include "peer.h"

/* The bare instruction, so that the C library adds nothing. */
static inline long raw_call(long number)
{
	long result;

	__asm__ volatile("syscall" : "=a"(result) : "a"(number) : "rcx", "r11", "memory");
	return result;
}

void rows_calls(void)
{
	static struct samples samples;
	enum { BATCH = 1000, ROUNDS = 101 };

	if (!row_wanted("null-call"))
		return;
	samples_begin(&samples, BATCH);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = ticks_now();

		for (int i = 0; i < BATCH; i++)
			raw_call(SYS_getpid);
		samples_add(&samples, ticks_now() - start);
	}
	row_print("null-call", &samples);
}
