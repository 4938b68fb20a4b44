#include "driver.h"
#include <zlib.h>
int main(void) {
    for (int level = 0; level <= 9; level += 3) {
        uLongf length = sizeof packed, back = sizeof again;
        fill(plain, SIZE);
        int first = compress2(packed, &length, plain, SIZE, level);
        say("packed", packed, length);
        int second = uncompress(again, &back, packed, length);
        printf("%d %d %lu %d %08lx %08lx\n", first, second, (unsigned long)back, same(),
               (unsigned long)crc32(0, plain, SIZE), (unsigned long)adler32(1, plain, SIZE));
        packed[length / 2] ^= 4;
        printf("%d\n", uncompress(again, &back, packed, length));
    }
    return 0;
}
