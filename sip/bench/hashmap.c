/* A hash map with open addressing: 60,000 insertions, look-ups and removals. */
#include "kernel.h"
enum { SLOTS = 1 << 17, KEYS = 60000 };
static struct { u64 key; u32 value, state; } map[SLOTS];
static u32 hash(u64 key) {
    key ^= key >> 33; key *= 0xff51afd7ed558ccdull; key ^= key >> 33; key *= 0xc4ceb9fe1a85ec53ull;
    return (u32)(key ^ key >> 33) & (SLOTS - 1);
}
static u32 find(u64 key) {
    u32 at = hash(key);
    while (map[at].state == 2 || (map[at].state == 1 && map[at].key != key)) at = (at + 1) & (SLOTS - 1);
    return at;
}
u64 run(u32 n) {
    u64 sum = 0;
    while (n--) {
        for (u32 i = 0; i < SLOTS; i++) map[i].state = 0;
        u32 state = 5;
        for (u32 i = 0; i < KEYS; i++) {
            u64 key = next(&state) * 0x9e3779b97f4a7c15ull;
            u32 at = find(key);
            map[at].key = key; map[at].value = i; map[at].state = 1;
        }
        state = 5;
        for (u32 i = 0; i < KEYS; i++) {
            u64 key = next(&state) * 0x9e3779b97f4a7c15ull;
            u32 at = find(key + (i & 1));
            if (map[at].state == 1) { sum += map[at].value; if (i % 3 == 0) map[at].state = 2; }
        }
    }
    return sum;
}
