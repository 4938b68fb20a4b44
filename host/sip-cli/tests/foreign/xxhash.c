#include "driver.h"
#include <xxhash.h>
int main(void) {
    fill(plain, SIZE);
    for (u32 length = 0; length < SIZE; length = length * 3 / 2 + 1) {
        XXH128_hash_t wide = XXH3_128bits(plain, length);
        printf("%u %08x %016llx %016llx %016llx\n", length, XXH32(plain, length, 7), (unsigned long long)XXH64(plain, length, 7),
               (unsigned long long)XXH3_64bits(plain, length), (unsigned long long)(wide.low64 ^ wide.high64));
    }
    return 0;
}
