#include "driver.h"
#include <zstd.h>
int main(void) {
    for (int level = 1; level <= 19; level += 6) {
        fill(plain, SIZE);
        size_t length = ZSTD_compress(packed, sizeof packed, plain, SIZE, level);
        say("packed", packed, length);
        size_t back = ZSTD_decompress(again, sizeof again, packed, length);
        printf("%u %d\n", (u32)back, same());
    }
    return 0;
}
