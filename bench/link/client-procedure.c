/* The same, and what the database calls back is a procedure, so that the calls back are inline too. */
#include "server.h"
#include "server.inline.h"

static struct gond_procedure delivered;
#define DELIVER ((oo1_deliver *)&delivered)
#include "client.c"

__attribute__((constructor)) static void start(void)
{
	delivered = GOND_PROCEDURE(deliver);
}
