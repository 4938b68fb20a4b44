/* A small library. */
static long count;
long steps_next(void) { return ++count; }
