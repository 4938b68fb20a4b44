#include "driver.h"
#include <libdeflate.h>
int main(void) {
    for (int level = 1; level <= 12; level += 3) {
        fill(plain, SIZE);
        struct libdeflate_compressor *to = libdeflate_alloc_compressor(level);
        struct libdeflate_decompressor *from = libdeflate_alloc_decompressor();
        size_t length = libdeflate_zlib_compress(to, plain, SIZE, packed, sizeof packed), back = 0;
        say("packed", packed, length);
        int result = libdeflate_zlib_decompress(from, packed, length, again, SIZE, &back);
        printf("%d %u %d %08x\n", result, (u32)back, same(), libdeflate_crc32(0, plain, SIZE));
        libdeflate_free_compressor(to);
        libdeflate_free_decompressor(from);
    }
    return 0;
}
