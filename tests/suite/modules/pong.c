/* The other half. */
long ping_down(long n);
static long calls;
long pong_down(long n) { calls++; return n > 0 ? ping_down(n - 1) : -calls; }
long pong_calls(void) { return calls; }
