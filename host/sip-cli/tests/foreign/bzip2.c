#include "driver.h"
#include <bzlib.h>
void bz_internal_error(int code) { printf("error %d\n", code); exit(1); }
int main(void) {
    for (int level = 1; level <= 9; level += 4) {
        unsigned length = sizeof packed, back = sizeof again;
        fill(plain, SIZE);
        int first = BZ2_bzBuffToBuffCompress((char *)packed, &length, (char *)plain, SIZE, level, 0, 30);
        say("packed", packed, length);
        int second = BZ2_bzBuffToBuffDecompress((char *)again, &back, (char *)packed, length, 0, 0);
        int small = BZ2_bzBuffToBuffDecompress((char *)again, &back, (char *)packed, length, 1, 0);
        packed[length / 2] ^= 4;
        int bad = BZ2_bzBuffToBuffDecompress((char *)again, &back, (char *)packed, length, 0, 0);
        printf("%d %d %d %d %u\n", first, second, small, bad, back);
    }
    return 0;
}
