/* Runs a kernel on the machine: `kernel N` prints nanoseconds and the checksum. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "kernel.h"
int main(int count, char **words) {
    struct timespec from, to;
    u32 n = count > 1 ? (u32)atoi(words[1]) : 1;
    run(1);
    clock_gettime(CLOCK_MONOTONIC, &from);
    u64 sum = run(n);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%lld %llu\n", (to.tv_sec - from.tv_sec) * 1000000000ll + to.tv_nsec - from.tv_nsec, sum);
    return 0;
}
