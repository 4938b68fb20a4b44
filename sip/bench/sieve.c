/* Primes below a million, by Eratosthenes. */
#include "kernel.h"
enum { LIMIT = 1000000 };
static u8 composite[LIMIT];
u64 run(u32 n) {
    u64 sum = 0;
    while (n--) {
        for (u32 i = 0; i < LIMIT; i++) composite[i] = 0;
        for (u32 i = 2; i < LIMIT; i++) {
            if (composite[i]) continue;
            sum += i;
            for (u64 j = (u64)i * i; j < LIMIT; j += i) composite[j] = 1;
        }
    }
    return sum;
}
