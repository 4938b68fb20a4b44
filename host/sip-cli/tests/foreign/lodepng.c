#include "driver.h"
#include <lodepng.h>
int main(void) {
    for (int kind = 0; kind < 7; kind++) {
        if (kind == 1 || kind == 5) continue;
        unsigned width = 90, height = 70, w, h;
        u8 *out = 0, *back = 0;
        size_t length = 0;
        fill(plain, SIZE);
        unsigned first = lodepng_encode_memory(&out, &length, plain, width, height, (LodePNGColorType)(kind == 3 ? 2 : kind), 8);
        say("png", out, length);
        unsigned second = lodepng_decode32(&back, &w, &h, out, length);
        say("image", back, w * h * 4);
        printf("%u %u %u %u\n", first, second, w, h);
        free(out), free(back);
    }
    return 0;
}
