/*
 * The client of OO1 (docs/spec/oo1.md, sections 6 and 7): its procedure, its rounds, the row in one domain. The same source
 * runs on both systems, so it asks nobody but oo1_memory and measure.c for anything.
 */
#include "oo1_client.h"

#include <stdio.h>
#include <string.h>

#include "peer.h"

/* ---- the client's procedure ---- */

static uint64_t accumulator;

uint64_t oo1_client_deliver(uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3)
{
	uint64_t h = oo1_fold(accumulator, w0);

	h = oo1_fold(h, w1);
	h = oo1_fold(h, w2);
	accumulator = oo1_fold(h, w3);
	return 0;
}

/* ---- the database, near or far ---- */

static struct oo1_database *near_database;

uint64_t oo1_perform(enum oo1_operation operation, uint64_t w0, uint64_t w1, uint64_t w2, oo1_deliver *deliver)
{
	switch (operation) {
	case OO1_LOOKUP:
		return oo1_lookup(near_database, (uint32_t)w0, deliver);
	case OO1_FORWARD:
		return oo1_forward(near_database, (uint32_t)w0, deliver);
	case OO1_REVERSE:
		return oo1_reverse(near_database, (uint32_t)w0, deliver);
	case OO1_INSERT:
		return oo1_insert(near_database, w0, w1, w2, deliver);
	case OO1_UNDO:
		return oo1_undo(near_database);
	case OO1_DIGEST:
		return oo1_digest(near_database);
	default:
		CHECK(!"an operation of the table");
		return 0;
	}
}

static uint64_t near_call(enum oo1_operation operation, uint64_t w0, uint64_t w1, uint64_t w2)
{
	return oo1_perform(operation, w0, w1, w2, oo1_client_deliver);
}

void oo1_make_database(uint32_t parts)
{
	near_database = oo1_make(oo1_memory(oo1_size(parts)), parts);
}

static void drop_database(uint32_t parts)
{
	oo1_memory_drop(near_database, oo1_size(parts));
	near_database = NULL;
}

/* ---- rounds ---- */

static const char *const part_names[MEASURED_PARTS] = {"lookup", "forward", "reverse", "insert"};

struct work {
	uint32_t ids[OO1_LOOKUPS];
	uint32_t forward_start, reverse_start;
	uint64_t inserts[OO1_INSERTS][3];
};

static struct work work;

void oo1_prepare_work(uint32_t parts)
{
	struct oo1_random random = oo1_stream(3);

	for (int i = 0; i < OO1_LOOKUPS; i++)
		work.ids[i] = 1 + (uint32_t)oo1_below(&random, parts);
	random = oo1_stream(4);
	work.forward_start = 1 + (uint32_t)oo1_below(&random, parts);
	work.reverse_start = 1 + (uint32_t)oo1_below(&random, parts);
	random = oo1_stream(5);
	for (int i = 0; i < OO1_INSERTS; i++) {
		uint64_t x = oo1_below(&random, 100000), y = oo1_below(&random, 100000);
		uint64_t digit = '0' + oo1_below(&random, 10), draw = oo1_next(&random) >> 16;

		work.inserts[i][0] = x | y << 32;
		memcpy(&work.inserts[i][1], "part-typ", 8);
		work.inserts[i][2] = 'e' | digit << 8 | draw << 16;
	}
}

static void run_part(oo1_call *call, enum measured_part part, struct oo1_outcome *outcome)
{
	accumulator = OO1_FOLD_START;
	switch (part) {
	case LOOKUP:
		for (int i = 0; i < OO1_LOOKUPS; i++)
			accumulator = oo1_fold(accumulator, call(OO1_LOOKUP, work.ids[i], 0, 0));
		break;
	case FORWARD:
		accumulator = oo1_fold(accumulator, call(OO1_FORWARD, work.forward_start, 0, 0));
		break;
	case REVERSE:
		outcome->visits = call(OO1_REVERSE, work.reverse_start, 0, 0);
		accumulator = oo1_fold(accumulator, outcome->visits);
		break;
	default:
		for (int i = 0; i < OO1_INSERTS; i++) {
			const uint64_t *words = work.inserts[i];

			accumulator = oo1_fold(accumulator, call(OO1_INSERT, words[0], words[1], words[2]));
		}
		break;
	}
	outcome->checksums[part] = accumulator;
}

static uint64_t checksum_of(const struct oo1_outcome *outcome)
{
	uint64_t h = OO1_FOLD_START;

	for (int part = 0; part < MEASURED_PARTS; part++)
		h = oo1_fold(h, outcome->checksums[part]);
	return h;
}

static struct samples warm[MEASURED_PARTS];
static uint64_t cold[MEASURED_PARTS];

struct oo1_outcome oo1_run_rounds(oo1_call *volatile call)
{
	struct oo1_outcome first = {0};

	for (int part = 0; part < MEASURED_PARTS; part++)
		samples_begin(&warm[part], 1);
	for (int round = 0; round < OO1_ROUNDS; round++) {
		struct oo1_outcome outcome = {0};

		for (int part = 0; part < MEASURED_PARTS; part++) {
			uint64_t start = ticks_now(), ticks;

			run_part(call, part, &outcome);
			ticks = ticks_now() - start;
			if (round == 0)
				cold[part] = ticks;
			else
				samples_add(&warm[part], ticks);
		}
		CHECK(call(OO1_UNDO, 0, 0, 0) == OO1_INSERTS);
		if (round == 0)
			first = outcome;
		CHECK(memcmp(&first, &outcome, sizeof first) == 0);
	}
	return first;
}

void oo1_print_row(const char *name, const struct oo1_outcome *outcome)
{
	uint64_t total = 0, minimum = 0;
	char line[512];
	int length = 0;

	for (int part = 0; part < MEASURED_PARTS; part++) {
		total += samples_median(&warm[part]);
		minimum += samples_minimum(&warm[part]);
	}
	for (int part = 0; part < MEASURED_PARTS; part++)
		length += snprintf(line + length, sizeof line - (size_t)length, " %s=%llu", part_names[part],
				   (unsigned long long)samples_median(&warm[part]));
	for (int part = 0; part < MEASURED_PARTS; part++)
		length += snprintf(line + length, sizeof line - (size_t)length, " cold-%s=%llu", part_names[part],
				   (unsigned long long)cold[part]);
	length += snprintf(line + length, sizeof line - (size_t)length, " visits=%llu checksum=0x%016llx",
			   (unsigned long long)outcome->visits, (unsigned long long)checksum_of(outcome));
	if (measure_nanoseconds(total) != 0)
		snprintf(line + length, sizeof line - (size_t)length, " ns=%llu",
			 (unsigned long long)measure_nanoseconds(total));
	peer_print("row=%s ticks=%llu min=%llu n=%d%s", name, (unsigned long long)total, (unsigned long long)minimum,
		   OO1_ROUNDS - 1, line);
}

/* ---- the row in one domain ---- */

void oo1_row_one_domain(const char *name)
{
	struct oo1_outcome outcome;

	oo1_make_database(OO1_PARTS);
	outcome = oo1_run_rounds(near_call);
	oo1_print_row(name, &outcome);
	drop_database(OO1_PARTS);
}

void oo1_print_reference(void)
{
	static const uint32_t sizes[] = {1000, 20000, 200000};
	struct oo1_random random = oo1_stream(1);

	for (int i = 0; i < 3; i++)
		peer_print("stream(1) %d: 0x%016llx", i, (unsigned long long)oo1_next(&random));
	for (int i = 0; i < 3; i++) {
		struct oo1_outcome outcome;

		oo1_prepare_work(sizes[i]);
		oo1_make_database(sizes[i]);
		peer_print("parts %u size %zu digest 0x%016llx", sizes[i], oo1_size(sizes[i]),
			   (unsigned long long)oo1_digest(near_database));
		peer_print("  first lookup %u, forward from %u, reverse from %u", work.ids[0], work.forward_start,
			   work.reverse_start);
		outcome = oo1_run_rounds(near_call);
		peer_print("  digest after the rounds 0x%016llx", (unsigned long long)oo1_digest(near_database));
		for (int part = 0; part < MEASURED_PARTS; part++)
			peer_print("  %s 0x%016llx", part_names[part], (unsigned long long)outcome.checksums[part]);
		peer_print("  reverse visits %llu, checksum 0x%016llx", (unsigned long long)outcome.visits,
			   (unsigned long long)checksum_of(&outcome));
		drop_database(sizes[i]);
	}
}
