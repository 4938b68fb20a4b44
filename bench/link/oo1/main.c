/* OO1 in C on this system: the sources of the Linux peer (bench/linux), and what they ask of their system. */
#include "oo1_client.h"
#include "peer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void *sys_object(unsigned long bytes);
void sys_delete(void *object);

void peer_fail(const char *what, const char *file, int line)
{
	printf("%s:%d: not so: %s\n", file, line, what);
	exit(1);
}

void peer_print(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	printf("\n");
}

/* An object: it is zeroed, and begins with a page. */
void *oo1_memory(size_t bytes)
{
	void *memory = sys_object(bytes);

	CHECK(memory != NULL);
	return memory;
}

void oo1_memory_drop(void *memory, size_t bytes)
{
	(void)bytes;
	sys_delete(memory);
}

/* The C library has no clock_gettime. */
int clock_gettime(clockid_t which, struct timespec *now)
{
	clock_t microseconds = clock();

	(void)which;
	now->tv_sec = microseconds / 1000000;
	now->tv_nsec = microseconds % 1000000 * 1000;
	return 0;
}

int main(void)
{
	measure_calibrate();
	oo1_prepare_work(OO1_PARTS);
	oo1_row_one_domain("oo1-one-domain-c");
	return 0;
}
