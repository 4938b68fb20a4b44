/*
 * The OO1 database: parts, connections, index and the six operations of docs/spec/oo1.md.
 *
 * It knows nothing of where its client is: results go to a procedure it is given, once per part. Identifiers inside
 * are addresses; only the client's identifiers are numbers, and those are resolved through the sorted index.
 */
#include "oo1.h"

#include <string.h>

struct connection {
	struct part *to;
	struct part *from;
	struct connection *next_incoming;
	int32_t length;
	char kind[10];
	char zero[2];
};

struct part {
	uint32_t id;
	int32_t x;
	int32_t y;
	uint32_t zero;
	uint64_t build;
	char kind[10];
	char zeros[6];
	struct connection *incoming;
	struct connection out[3];
};

struct entry {
	uint32_t id;
	uint32_t zero;
	struct part *part;
};

struct oo1_database {
	uint64_t magic;
	uint32_t version;
	uint32_t initial;
	uint32_t count;
	uint32_t capacity;
	uint64_t seed;
	struct part *parts;
	struct entry *index;
	uint64_t zeros[2];
};

_Static_assert(sizeof(struct connection) == 40, "layout of docs/spec/oo1.md");
_Static_assert(sizeof(struct part) == 168, "layout of docs/spec/oo1.md");
_Static_assert(offsetof(struct part, incoming) == 40, "layout of docs/spec/oo1.md");
_Static_assert(sizeof(struct entry) == 16, "layout of docs/spec/oo1.md");
_Static_assert(sizeof(struct oo1_database) == 64, "layout of docs/spec/oo1.md");

enum { PAGE = 4096, COORDINATES = 100000, TEN_YEARS = 315360000, LENGTHS = 1000 };
static const uint64_t MAGIC = 0x3141544144314f4f;

/* ---- random numbers ---- */

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

struct oo1_random oo1_stream(uint64_t number)
{
	return (struct oo1_random){mix(OO1_SEED + number)};
}

uint64_t oo1_next(struct oo1_random *random)
{
	random->state += 0x9e3779b97f4a7c15u;
	return mix(random->state);
}

uint64_t oo1_below(struct oo1_random *random, uint64_t bound)
{
	return (uint64_t)((unsigned __int128)oo1_next(random) * bound >> 64);
}

/* ---- making ---- */

static size_t round_up(size_t size)
{
	return (size + PAGE - 1) & ~(size_t)(PAGE - 1);
}

static size_t index_offset(uint32_t capacity)
{
	return PAGE + round_up(capacity * sizeof(struct part));
}

size_t oo1_size(uint32_t initial)
{
	uint32_t capacity = initial + OO1_SPARE;

	return index_offset(capacity) + round_up(capacity * sizeof(struct entry));
}

static struct part *find(const struct oo1_database *database, uint32_t id)
{
	const struct entry *index = database->index;
	uint32_t low = 0, high = database->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (index[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < database->count && index[low].id == id ? index[low].part : NULL;
}

static uint32_t choose_target(uint32_t id, uint32_t initial, struct oo1_random *random)
{
	uint32_t target;

	if (oo1_below(random, 10) < 9) {
		uint32_t width = initial / 100, half = width / 2;
		uint32_t low = id > half + 1 ? id - half : 1;
		uint32_t last = initial - width + 1;

		if (low > last)
			low = last;
		target = low + (uint32_t)oo1_below(random, width);
	} else {
		target = 1 + (uint32_t)oo1_below(random, initial);
	}
	return target == id ? id % initial + 1 : target;
}

static struct part *connect_part(struct oo1_database *database, struct part *part, int k, struct oo1_random *random)
{
	uint32_t target = choose_target(part->id, database->initial, random);
	struct connection *connection = &part->out[k];
	struct part *to;

	memcpy(connection->kind, "conn-type", 9);
	connection->kind[9] = (char)('0' + oo1_below(random, 10));
	connection->length = (int32_t)oo1_below(random, LENGTHS);
	to = find(database, target);
	connection->from = part;
	connection->to = to;
	connection->next_incoming = to->incoming;
	to->incoming = connection;
	return to;
}

struct oo1_database *oo1_make(void *base, uint32_t initial)
{
	struct oo1_database *database = base;
	struct oo1_random random = oo1_stream(1);

	database->version = 1;
	database->initial = database->count = initial;
	database->capacity = initial + OO1_SPARE;
	database->seed = OO1_SEED;
	database->parts = (struct part *)((char *)base + PAGE);
	database->index = (struct entry *)((char *)base + index_offset(database->capacity));
	for (uint32_t id = 1; id <= initial; id++) {
		struct part *part = &database->parts[id - 1];

		part->id = id;
		part->x = (int32_t)oo1_below(&random, COORDINATES);
		part->y = (int32_t)oo1_below(&random, COORDINATES);
		memcpy(part->kind, "part-type", 9);
		part->kind[9] = (char)('0' + oo1_below(&random, 10));
		part->build = oo1_below(&random, TEN_YEARS);
		database->index[id - 1] = (struct entry){id, 0, part};
	}
	random = oo1_stream(2);
	for (uint32_t id = 1; id <= initial; id++)
		for (int k = 0; k < 3; k++)
			connect_part(database, &database->parts[id - 1], k, &random);
	database->magic = MAGIC;
	return database;
}

/* ---- operations ---- */

/* The ten bytes of a kind as two words. */
static uint64_t kind_low(const char *kind)
{
	uint64_t word;

	memcpy(&word, kind, 8);
	return word;
}

static uint64_t kind_high(const char *kind)
{
	uint16_t word;

	memcpy(&word, kind + 8, 2);
	return word;
}

static uint64_t position(const struct part *part)
{
	return (uint32_t)part->x | (uint64_t)(uint32_t)part->y << 32;
}

static void deliver_part(const struct part *part, oo1_deliver *deliver)
{
	deliver(part->id, position(part), kind_low(part->kind), kind_high(part->kind));
}

uint64_t oo1_lookup(struct oo1_database *database, uint32_t id, oo1_deliver *deliver)
{
	const struct part *part = find(database, id);

	if (part == NULL)
		return 0;
	deliver_part(part, deliver);
	return 1;
}

static uint64_t walk(const struct part *part, int depth, oo1_deliver *deliver)
{
	uint64_t visits = 1;

	deliver_part(part, deliver);
	if (depth < OO1_DEPTH)
		for (int k = 0; k < 3; k++)
			visits += walk(part->out[k].to, depth + 1, deliver);
	return visits;
}

uint64_t oo1_forward(struct oo1_database *database, uint32_t id, oo1_deliver *deliver)
{
	const struct part *part = find(database, id);

	return part == NULL ? 0 : walk(part, 0, deliver);
}

static uint64_t climb(const struct part *part, int depth, oo1_deliver *deliver)
{
	uint64_t visits = 1;

	deliver_part(part, deliver);
	if (depth < OO1_DEPTH)
		for (const struct connection *c = part->incoming; c != NULL; c = c->next_incoming)
			visits += climb(c->from, depth + 1, deliver);
	return visits;
}

uint64_t oo1_reverse(struct oo1_database *database, uint32_t id, oo1_deliver *deliver)
{
	const struct part *part = find(database, id);

	return part == NULL ? 0 : climb(part, 0, deliver);
}

/* Enters a part into the index, which stays sorted. */
static void index_insert(struct oo1_database *database, struct part *part)
{
	uint32_t at = database->count;

	for (; at > 0 && database->index[at - 1].id > part->id; at--)
		database->index[at] = database->index[at - 1];
	database->index[at] = (struct entry){part->id, 0, part};
}

uint64_t oo1_insert(struct oo1_database *database, uint64_t w0, uint64_t w1, uint64_t w2, oo1_deliver *deliver)
{
	struct part *part = &database->parts[database->count];
	struct oo1_random random = {w2 >> 16};

	if (database->count == database->capacity)
		return 0;
	memset(part, 0, sizeof *part);
	part->id = database->count + 1;
	part->x = (int32_t)w0;
	part->y = (int32_t)(w0 >> 32);
	memcpy(part->kind, &w1, 8);
	memcpy(part->kind + 8, &w2, 2);
	part->build = oo1_below(&random, TEN_YEARS);
	index_insert(database, part);
	database->count++;
	for (int k = 0; k < 3; k++)
		deliver_part(connect_part(database, part, k, &random), deliver);
	return part->id;
}

uint64_t oo1_undo(struct oo1_database *database)
{
	uint64_t removed = 0;

	while (database->count > database->initial) {
		struct part *part = &database->parts[database->count - 1];

		for (int k = 2; k >= 0; k--) {
			struct connection *connection = &part->out[k];

			if (connection->to != NULL && connection->to->incoming == connection)
				connection->to->incoming = connection->next_incoming;
			connection->to = NULL;
		}
		database->count--;
		removed++;
	}
	return removed;
}

uint64_t oo1_digest(struct oo1_database *database)
{
	uint64_t h = oo1_fold(OO1_FOLD_START, database->count);

	for (uint32_t i = 0; i < database->count; i++) {
		const struct part *part = database->index[i].part;
		uint64_t incoming = 0;

		h = oo1_fold(h, part->id);
		h = oo1_fold(h, position(part));
		h = oo1_fold(h, kind_low(part->kind));
		h = oo1_fold(h, kind_high(part->kind));
		h = oo1_fold(h, part->build);
		for (int k = 0; k < 3; k++) {
			const struct connection *connection = &part->out[k];

			h = oo1_fold(h, connection->to->id);
			h = oo1_fold(h, (uint32_t)connection->length);
			h = oo1_fold(h, kind_low(connection->kind));
			h = oo1_fold(h, kind_high(connection->kind));
		}
		for (const struct connection *c = part->incoming; c != NULL; c = c->next_incoming, incoming++)
			h = oo1_fold(h, c->from->id);
		h = oo1_fold(h, incoming);
	}
	return h;
}
