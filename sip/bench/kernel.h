/* What the kernels share. Each defines `run`, which does its work `n` times and yields a checksum: the same
   source is built for WebAssembly and for the machine. */
#ifndef KERNEL_H
#define KERNEL_H
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
/* Under another name it is one of many in a module, which can have only one `run`. */
#if defined(__wasm__) && !defined(run)
#define ENTRY __attribute__((export_name("run")))
#else
#define ENTRY
#endif
ENTRY u64 run(u32 n);
static inline u32 next(u32 *state) {
    u32 x = *state;
    x ^= x << 13; x ^= x >> 17; x ^= x << 5;
    return *state = x;
}
#endif
