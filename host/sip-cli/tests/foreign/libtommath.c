#include "driver.h"
#include <tommath.h>
/* Sources of random numbers that are not used. */
mp_err s_read_arc4random(void *to, size_t bytes) { (void)to, (void)bytes; return MP_ERR; }
mp_err s_read_wincsp(void *to, size_t bytes) { (void)to, (void)bytes; return MP_ERR; }
mp_err s_read_ltm_rng(void *to, size_t bytes) { (void)to, (void)bytes; return MP_ERR; }
int main(void) {
    static char text[40000];
    mp_int a, b, c, m;
    if (mp_init_multi(&a, &b, &c, &m, NULL) != MP_OKAY) return 1;
    mp_set(&a, 1);
    for (u32 i = 2; i < 400; i++) mp_mul_d(&a, i, &a);
    for (int i = 0; i < 12; i++) {
        mp_sqr(&a, &b), mp_add_d(&b, 17 + number(1000), &b), mp_mul_2d(&b, (int)number(70), &b);
        mp_set_u32(&m, 1000003 + number(1000000)), mp_exptmod(&a, &b, &m, &c);
        mp_div(&b, &a, &a, &m), mp_gcd(&b, &m, &b), mp_sub(&a, &c, &a);
        mp_to_radix(&a, text, sizeof text, NULL, 10), say("a", text, strlen(text));
        mp_to_radix(&b, text, sizeof text, NULL, 36), printf("%s\n", text);
        mp_mod_2d(&a, 3000, &a);
    }
    return 0;
}
