#include "driver.h"
#include <utf8proc.h>
int main(void) {
    static u8 text[9000];
    for (int round = 0; round < 60; round++) {
        utf8proc_ssize_t length = 0;
        while (length < 3000) length += utf8proc_encode_char(number(4) ? 0x80 + (int)number(0x3000) : 0xac00 + (int)number(900), text + length);
        for (int form = 0; form < 4; form++) {
            u8 *out = 0;
            utf8proc_option_t how[] = {UTF8PROC_COMPOSE, UTF8PROC_DECOMPOSE, UTF8PROC_COMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD,
                                       UTF8PROC_DECOMPOSE | UTF8PROC_STRIPMARK};
            utf8proc_ssize_t got = utf8proc_map(text, length, &out, how[form] | UTF8PROC_STABLE);
            printf("%d %08x\n", (int)got, got > 0 ? sum(out, got) : 0);
            free(out);
        }
    }
    return 0;
}
