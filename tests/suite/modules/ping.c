/* One half of a cycle: each imports the other. */
long pong_down(long n);
static long calls;
static int constructed;
__attribute__((constructor)) static void construct(void) { constructed = 7; }
long ping_down(long n) { calls++; return n > 0 ? pong_down(n - 1) : calls; }
long ping_calls(void) { return calls; }
long ping_constructed(void) { return constructed; }
