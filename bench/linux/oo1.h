/*
 * OO1: the database and the client's side of it, exactly as docs/spec/oo1.md says.
 */
#ifndef OO1_H
#define OO1_H

#include <stddef.h>
#include <stdint.h>

enum {
	OO1_SEED = 0x6f6f31,
	OO1_PARTS = 20000,
	OO1_SPARE = 1000,
	OO1_LOOKUPS = 1000,
	OO1_INSERTS = 100,
	OO1_DEPTH = 7,
	OO1_ROUNDS = 10,
};

/* ---- random numbers (section 2) ---- */
struct oo1_random {
	uint64_t state;
};
struct oo1_random oo1_stream(uint64_t number);
uint64_t oo1_next(struct oo1_random *random);
uint64_t oo1_below(struct oo1_random *random, uint64_t bound);

/* ---- the database (sections 3 to 5, 8) ---- */
struct oo1_database;

/* The client's procedure: called with the four words of a part. */
typedef uint64_t oo1_deliver(uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3);

/* Bytes that a database of `initial` parts takes. */
size_t oo1_size(uint32_t initial);
/* Makes a database of `initial` parts in zeroed, page-aligned memory of oo1_size(initial) bytes. */
struct oo1_database *oo1_make(void *base, uint32_t initial);

enum oo1_operation {
	OO1_RESULT = 0, /* in a message: the answer to the last request */
	OO1_LOOKUP = 1,
	OO1_FORWARD = 2,
	OO1_REVERSE = 3,
	OO1_INSERT = 4,
	OO1_UNDO = 5,
	OO1_DIGEST = 6,
	OO1_DELIVER = 7, /* in a message: a call of the client's procedure */
};

uint64_t oo1_lookup(struct oo1_database *database, uint32_t id, oo1_deliver *deliver);
uint64_t oo1_forward(struct oo1_database *database, uint32_t id, oo1_deliver *deliver);
uint64_t oo1_reverse(struct oo1_database *database, uint32_t id, oo1_deliver *deliver);
uint64_t oo1_insert(struct oo1_database *database, uint64_t w0, uint64_t w1, uint64_t w2, oo1_deliver *deliver);
uint64_t oo1_undo(struct oo1_database *database);
uint64_t oo1_digest(struct oo1_database *database);

/* ---- folding (sections 6, 8) ---- */
#define OO1_FOLD_START 0xcbf29ce484222325u

static inline uint64_t oo1_fold(uint64_t h, uint64_t word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15u;
	return h ^ (h >> 32);
}

#endif
