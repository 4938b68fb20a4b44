/* Quicksort of 100,000 numbers. */
#include "kernel.h"
enum { COUNT = 100000 };
static u32 numbers[COUNT];
static void sort(u32 *from, u32 *to) {
    while (to - from > 1) {
        u32 pivot = from[(to - from - 1) / 2], *low = from, *high = to - 1;
        for (;;) {
            while (*low < pivot) low++;
            while (*high > pivot) high--;
            if (low >= high) break;
            u32 kept = *low; *low++ = *high; *high-- = kept;
        }
        sort(from, high + 1);
        from = high + 1;
    }
}
u64 run(u32 n) {
    u64 sum = 0;
    u32 state = 1;
    while (n--) {
        for (int i = 0; i < COUNT; i++) numbers[i] = next(&state);
        sort(numbers, numbers + COUNT);
        for (int i = 1; i < COUNT; i++) sum += numbers[i - 1] <= numbers[i] ? numbers[i] : ~0ull;
    }
    return sum;
}
