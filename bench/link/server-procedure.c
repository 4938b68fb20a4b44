/* The database for client-procedure.c: what it is given to call back is a procedure. The sources are the same; only what
 * `deliver(…)` means in them differs. */
#include "server.h"
#include "gond_inline.h"

GOND_CALLER_4(call_deliver, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t)
#define deliver(...) call_deliver((const struct gond_procedure *)deliver, __VA_ARGS__)
#include "server.c"
