/* The database of docs/spec/oo1.md as a library with private data, as in the paper's section 6: it knows its
 * database itself, and calls back a procedure that it is given. */
#ifndef SERVER_H
#define SERVER_H
#include "../linux/oo1.h"

int server_make(void *memory, uint32_t parts);
uint64_t server_size(uint32_t parts);
uint64_t server_lookup(uint32_t id, oo1_deliver *deliver);
uint64_t server_forward(uint32_t id, oo1_deliver *deliver);
uint64_t server_reverse(uint32_t id, oo1_deliver *deliver);
uint64_t server_insert(uint64_t w0, uint64_t w1, uint64_t w2, oo1_deliver *deliver);
uint64_t server_undo(void);
uint64_t server_served(void);
#endif
