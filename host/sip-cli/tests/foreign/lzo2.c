#include "driver.h"
#include <lzo/lzo1x.h>
int main(void) {
    static u8 work[LZO1X_999_MEM_COMPRESS];
    for (int kind = 0; kind < 2; kind++) {
        lzo_uint length = sizeof packed, back = sizeof again;
        fill(plain, SIZE);
        int first = kind ? lzo1x_999_compress(plain, SIZE, packed, &length, work) : lzo1x_1_compress(plain, SIZE, packed, &length, work);
        say("packed", packed, length);
        int second = lzo1x_decompress_safe(packed, length, again, &back, 0);
        printf("%d %d %u %d\n", first, second, (u32)back, same());
    }
    return 0;
}
