/* What the drivers share: data that is the same everywhere, and a sum of it. Each driver calls a library that is not
   part of this tree, and prints what it did: the same for WebAssembly and for the machine. */
#ifndef DRIVER_H
#define DRIVER_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned char u8;
typedef unsigned int u32;
static u32 seed = 1;
static inline u32 number(u32 below) {
    seed ^= seed << 13; seed ^= seed >> 17; seed ^= seed << 5;
    return seed % below;
}
/* Half text that repeats itself, half noise. */
static inline void fill(u8 *to, u32 bytes) {
    u32 at = 0;
    while (at < bytes) {
        u32 run = 1 + number(40);
        u32 back = 1 + number(at < 30000 ? at + 1 : 30000);
        int copies = at > 100 && number(4);
        for (u32 i = 0; i < run && at < bytes; i++, at++)
            to[at] = copies && back <= at ? to[at - back] : (u8)(32 + number(number(8) ? 64 : 224));
    }
}
static inline u32 sum(const void *data, size_t bytes) {
    const u8 *at = data;
    u32 sum = 2166136261u;
    while (bytes--) sum = (sum ^ *at++) * 16777619u;
    return sum;
}
static inline void say(const char *what, const void *data, size_t bytes) {
    printf("%s: %u bytes, sum %08x\n", what, (u32)bytes, sum(data, bytes));
}
#define SIZE 300000u
static u8 plain[SIZE], packed[2 * SIZE + 10000], again[SIZE + 64];
static inline int same(void) { return memcmp(plain, again, SIZE) == 0; }
#endif
