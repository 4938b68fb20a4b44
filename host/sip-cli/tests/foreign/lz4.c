#include "driver.h"
#include <lz4.h>
#include <lz4hc.h>
int main(void) {
    for (int level = 0; level <= 12; level += 4) {
        fill(plain, SIZE);
        int length = level ? LZ4_compress_HC((char *)plain, (char *)packed, SIZE, sizeof packed, level)
                           : LZ4_compress_default((char *)plain, (char *)packed, SIZE, sizeof packed);
        /* What comes out packed depends on the width of a pointer. */
        int back = LZ4_decompress_safe((char *)packed, (char *)again, length, sizeof again);
        printf("%d %d\n", back, same());
    }
    return 0;
}
