/* See server.h. The code of the database is that of the Linux peer, unchanged. */
#include "../linux/oo1.c"
#include "server.h"

static struct oo1_database *database;
static uint64_t served;

int server_make(void *memory, uint32_t parts)
{
	database = oo1_make(memory, parts);
	return database != NULL;
}

uint64_t server_size(uint32_t parts) { return oo1_size(parts); }

uint64_t server_lookup(uint32_t id, oo1_deliver *deliver)
{
	served++;
	return oo1_lookup(database, id, deliver);
}

uint64_t server_forward(uint32_t id, oo1_deliver *deliver)
{
	served++;
	return oo1_forward(database, id, deliver);
}

uint64_t server_reverse(uint32_t id, oo1_deliver *deliver)
{
	served++;
	return oo1_reverse(database, id, deliver);
}

uint64_t server_insert(uint64_t w0, uint64_t w1, uint64_t w2, oo1_deliver *deliver)
{
	served++;
	return oo1_insert(database, w0, w1, w2, deliver);
}

uint64_t server_undo(void) { return oo1_undo(database); }
uint64_t server_served(void) { return served; }
