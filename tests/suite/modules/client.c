/* A client of the counter and of a module that nobody installs; all its uses are calls, so it can bind late. */
long counter_next(void);
long counter_peek(void);
long counter_sum(long, long, long, long, long, long, long, long);
long absent_function(long);
static long used;
long client_next(void) { used++; return counter_next(); }
long client_peek(void) { return counter_peek() + used * 0; }
long client_sum(void) { used++; return counter_sum(1, 2, 3, 4, 5, 6, 7, 8); }
long client_used(void) { return used; }
long client_absent(long n) { used++; return absent_function(n); }
