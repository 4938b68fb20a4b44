#include "driver.h"
#include <mini-gmp.h>
int main(void) {
    mpz_t a, b, c;
    mpz_init_set_ui(a, 1), mpz_init(b), mpz_init(c);
    for (u32 i = 2; i < 600; i++) mpz_mul_ui(a, a, i);
    for (int i = 0; i < 10; i++) {
        mpz_mul(b, a, a), mpz_add_ui(b, b, number(1000)), mpz_sqrt(c, b), mpz_tdiv_qr(a, c, b, a), mpz_set_ui(c, 1000003 + number(99999));
        mpz_powm(c, b, b, c), mpz_gcd(a, a, b), mpz_add(a, a, b), mpz_mul_2exp(a, a, number(90));
        char *text = mpz_get_str(NULL, 10, a);
        say("a", text, strlen(text)), free(text);
        printf("%lu %d\n", (unsigned long)mpz_get_ui(c) & 0xffffffff, mpz_probab_prime_p(c, 10));
        mpz_tdiv_r_2exp(a, a, 5000);
    }
    return 0;
}
