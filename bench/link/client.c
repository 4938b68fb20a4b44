/* The client of docs/spec/oo1.md, sections 6 and 7, in one process with the server; the same source for every
 * way of linking. Prints, for each part, the median and the least time of its rounds in nanoseconds. */
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What the database is given to call back. */
#ifndef DELIVER
#define DELIVER deliver
#endif

enum { LOOKUP, FORWARD, REVERSE, INSERT, PARTS, ROUNDS_MAX = 1000 };

static uint64_t accumulator;
static uint32_t ids[OO1_LOOKUPS], forward_start, reverse_start;
static uint64_t inserts[OO1_INSERTS][3];
static uint64_t times[PARTS][ROUNDS_MAX];

static uint64_t deliver(uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3)
{
	uint64_t h = oo1_fold(accumulator, w0);

	h = oo1_fold(h, w1);
	h = oo1_fold(h, w2);
	accumulator = oo1_fold(h, w3);
	return 0;
}

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static uint64_t next(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15u;
	return mix(*state);
}

static uint64_t below(uint64_t *state, uint64_t bound)
{
	return (uint64_t)((unsigned __int128)next(state) * bound >> 64);
}

static void prepare(uint32_t parts)
{
	uint64_t state = mix(OO1_SEED + 3);

	for (int i = 0; i < OO1_LOOKUPS; i++)
		ids[i] = 1 + (uint32_t)below(&state, parts);
	state = mix(OO1_SEED + 4);
	forward_start = 1 + (uint32_t)below(&state, parts);
	reverse_start = 1 + (uint32_t)below(&state, parts);
	state = mix(OO1_SEED + 5);
	for (int i = 0; i < OO1_INSERTS; i++) {
		uint64_t x = below(&state, 100000), y = below(&state, 100000);
		uint64_t digit = '0' + below(&state, 10), draw = next(&state) >> 16;

		inserts[i][0] = x | y << 32;
		memcpy(&inserts[i][1], "part-typ", 8);
		inserts[i][2] = 'e' | digit << 8 | draw << 16;
	}
}

static uint64_t run(int part)
{
	accumulator = OO1_FOLD_START;
	switch (part) {
	case LOOKUP:
		for (int i = 0; i < OO1_LOOKUPS; i++)
			accumulator = oo1_fold(accumulator, server_lookup(ids[i], DELIVER));
		break;
	case FORWARD:
		accumulator = oo1_fold(accumulator, server_forward(forward_start, DELIVER));
		break;
	case REVERSE:
		accumulator = oo1_fold(accumulator, server_reverse(reverse_start, DELIVER));
		break;
	default:
		for (int i = 0; i < OO1_INSERTS; i++)
			accumulator = oo1_fold(accumulator,
					       server_insert(inserts[i][0], inserts[i][1], inserts[i][2], DELIVER));
	}
	return accumulator;
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int order(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Runs so many rounds and prints a line; 0 if every round gave the same checksum. */
int client_run(int rounds)
{
	uint64_t first = 0;
	void *memory;

	if (rounds < 1 || rounds > ROUNDS_MAX || posix_memalign(&memory, 4096, server_size(OO1_PARTS)) != 0)
		return 1;
	memset(memory, 0, server_size(OO1_PARTS));
	if (!server_make(memory, OO1_PARTS))
		return 2;
	prepare(OO1_PARTS);
	for (int round = 0; round < rounds; round++) {
		uint64_t checksum = OO1_FOLD_START;

		for (int part = 0; part < PARTS; part++) {
			uint64_t start = now();

			checksum = oo1_fold(checksum, run(part));
			times[part][round] = now() - start;
		}
		if (server_undo() != OO1_INSERTS)
			return 3;
		if (round == 0)
			first = checksum;
		if (checksum != first)
			return 4;
	}
	printf("checksum=0x%016llx", (unsigned long long)first);
	for (int part = 0; part < PARTS; part++) {
		qsort(times[part], (size_t)rounds, sizeof times[part][0], order);
		printf(" %llu %llu", (unsigned long long)times[part][rounds / 2], (unsigned long long)times[part][0]);
	}
	printf("\n");
	fflush(NULL);
	return 0;
}
