/* dlopen LIBRARY now|lazy TIMES: the median time of opening it, in nanoseconds; each time it is closed again. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int order(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return (x > y) - (x < y);
}

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000 + time.tv_nsec;
}

int main(int count, char **words)
{
	int times = count > 3 ? atoi(words[3]) : 0;
	long *list = calloc((size_t)times + 1, sizeof *list);

	if (times < 1 || list == NULL)
		return 2;
	for (int i = 0; i < times; i++) {
		long start = now();
		void *handle = dlopen(words[1], strcmp(words[2], "now") == 0 ? RTLD_NOW : RTLD_LAZY);

		list[i] = now() - start;
		if (handle == NULL || dlclose(handle) != 0)
			return 1;
	}
	qsort(list, (size_t)times, sizeof *list, order);
	printf("%ld\n", list[times / 2]);
	return 0;
}
