#include "driver.h"
#include <brotli/decode.h>
#include <brotli/encode.h>
int main(void) {
    for (int level = 0; level <= 10; level += 5) {
        size_t length = sizeof packed, back = sizeof again;
        fill(plain, SIZE);
        int first = BrotliEncoderCompress(level, 20, BROTLI_MODE_TEXT, SIZE, plain, &length, packed);
        say("packed", packed, length);
        int second = BrotliDecoderDecompress(length, packed, &back, again);
        printf("%d %d %u %d\n", first, second, (u32)back, same());
    }
    return 0;
}
