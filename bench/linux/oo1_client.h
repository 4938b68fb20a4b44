/*
 * The client of OO1, for whoever has it call a database here or elsewhere.
 */
#ifndef OO1_CLIENT_H
#define OO1_CLIENT_H

#include "oo1.h"

/* ---- of each system ---- */

/* So many bytes of zeroed, page-aligned memory, and back. */
void *oo1_memory(size_t bytes);
void oo1_memory_drop(void *memory, size_t bytes);

/* ---- oo1_client.c ---- */

/* The client's procedure. */
uint64_t oo1_client_deliver(uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3);
/* Makes the database that oo1_perform asks. */
void oo1_make_database(uint32_t parts);
uint64_t oo1_perform(enum oo1_operation operation, uint64_t w0, uint64_t w1, uint64_t w2, oo1_deliver *deliver);

typedef uint64_t oo1_call(enum oo1_operation operation, uint64_t w0, uint64_t w1, uint64_t w2);

enum measured_part { LOOKUP, FORWARD, REVERSE, INSERT, MEASURED_PARTS };

struct oo1_outcome {
	uint64_t checksums[MEASURED_PARTS];
	uint64_t visits; /* of the reverse traversal */
};

/* Draws what is looked up, traversed and inserted; before any round. */
void oo1_prepare_work(uint32_t parts);
/* All rounds; the outcome of every round must be the same. */
struct oo1_outcome oo1_run_rounds(oo1_call *volatile call);
/* Prints the row of the rounds that ran last. */
void oo1_print_row(const char *name, const struct oo1_outcome *outcome);
/* The row with the database beside its client. */
void oo1_row_one_domain(const char *name);
/* The numbers of docs/spec/oo1.md. */
void oo1_print_reference(void);

#endif
