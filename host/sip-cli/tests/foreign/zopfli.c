#include "driver.h"
#include <zopfli.h>
int main(void) {
    ZopfliOptions options;
    ZopfliInitOptions(&options);
    options.numiterations = 2;
    fill(plain, 40000);
    for (int format = 0; format < 3; format++) {
        u8 *out = 0;
        size_t length = 0;
        ZopfliCompress(&options, (ZopfliFormat)format, plain, 40000, &out, &length);
        say("packed", out, length);
        free(out);
    }
    return 0;
}
