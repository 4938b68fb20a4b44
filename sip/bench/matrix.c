/* The product of two matrices of 160 by 160 doubles. */
#include "kernel.h"
enum { SIDE = 160 };
static double a[SIDE][SIDE], b[SIDE][SIDE], c[SIDE][SIDE];
u64 run(u32 n) {
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) { a[i][j] = i + j * 0.5; b[i][j] = i * 0.25 - j; }
    double sum = 0;
    while (n--) {
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++) {
                double x = 0;
                for (int k = 0; k < SIDE; k++) x += a[i][k] * b[k][j];
                c[i][j] = x;
            }
        sum += c[7][n % SIDE];
        a[0][n % SIDE] += 1;
    }
    return (u64)(long long)sum;
}
