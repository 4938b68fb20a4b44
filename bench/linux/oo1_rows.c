/*
 * The OO1 rows: the client of docs/spec/oo1.md (sections 6 and 7) over three ways to reach the database.
 *
 * oo1-one-domain calls it. In the other two the database lives in a process of its own, and a call is a message; the
 * database calls the client back for every part before it answers, so while a call is in progress the client serves
 * deliveries. Both ends use the same `link`: send one message, or take the next one.
 */
#define _GNU_SOURCE
#include "oo1.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"

/* ---- the client's procedure ---- */

static uint64_t accumulator;

static uint64_t client_deliver(uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3)
{
	uint64_t h = oo1_fold(accumulator, w0);

	h = oo1_fold(h, w1);
	h = oo1_fold(h, w2);
	accumulator = oo1_fold(h, w3);
	return 0;
}

/* ---- messages ---- */

struct message {
	uint64_t operation; /* enum oo1_operation */
	uint64_t words[4];
};

/* One page shared by both processes: a message and whose it is. */
struct mailbox {
	volatile uint32_t turn; /* the side (0 client, 1 database) that may use the page */
	struct message message;
};

/* One end of a connection; either a socket or a side of a mailbox. */
struct link {
	int socket;
	uint32_t side;
	struct mailbox *mailbox;
};

static void link_send(struct link *link, const struct message *message)
{
	if (link->mailbox == NULL) {
		write_all(link->socket, message, sizeof *message);
		return;
	}
	link->mailbox->message = *message;
	link->mailbox->turn = !link->side;
	futex_wake_one(&link->mailbox->turn);
}

static void link_receive(struct link *link, struct message *message)
{
	if (link->mailbox == NULL) {
		read_all(link->socket, message, sizeof *message);
		return;
	}
	futex_wait_while(&link->mailbox->turn, !link->side);
	*message = link->mailbox->message;
}

static struct link client_link, database_link;

/* The client's side of a call: serves deliveries until the result comes. */
static uint64_t remote_call(enum oo1_operation operation, uint64_t w0, uint64_t w1, uint64_t w2)
{
	struct message message = {operation, {w0, w1, w2, 0}};

	for (;;) {
		link_send(&client_link, &message);
		link_receive(&client_link, &message);
		if (message.operation == OO1_RESULT)
			return message.words[0];
		message.words[0] = client_deliver(message.words[0], message.words[1], message.words[2],
						  message.words[3]);
		message.operation = OO1_RESULT;
	}
}

/* The database's side of a delivery: a nested call to the client. */
static uint64_t remote_deliver(uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3)
{
	struct message message = {OO1_DELIVER, {w0, w1, w2, w3}};

	link_send(&database_link, &message);
	link_receive(&database_link, &message);
	CHECK(message.operation == OO1_RESULT);
	return message.words[0];
}

/* ---- the database, near or far ---- */

static struct oo1_database *near_database;

static uint64_t perform(enum oo1_operation operation, uint64_t w0, uint64_t w1, uint64_t w2, oo1_deliver *deliver)
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
	return perform(operation, w0, w1, w2, client_deliver);
}

static void make_database(uint32_t parts)
{
	void *memory = mmap(NULL, oo1_size(parts), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	near_database = oo1_make(memory, parts);
}

static void drop_database(uint32_t parts)
{
	CHECK(munmap(near_database, oo1_size(parts)) == 0);
	near_database = NULL;
}

/* The database process: makes its database, then serves until a request that is none of the operations. */
static void serve(uint32_t parts)
{
	struct message message;

	make_database(parts);
	for (;;) {
		link_receive(&database_link, &message);
		if (message.operation == OO1_RESULT)
			_exit(0);
		message.words[0] =
			perform(message.operation, message.words[0], message.words[1], message.words[2], remote_deliver);
		message.operation = OO1_RESULT;
		link_send(&database_link, &message);
	}
}

/* ---- rounds ---- */

typedef uint64_t oo1_call(enum oo1_operation operation, uint64_t w0, uint64_t w1, uint64_t w2);

enum measured_part { LOOKUP, FORWARD, REVERSE, INSERT, MEASURED_PARTS };
static const char *const part_names[MEASURED_PARTS] = {"lookup", "forward", "reverse", "insert"};

struct work {
	uint32_t ids[OO1_LOOKUPS];
	uint32_t forward_start, reverse_start;
	uint64_t inserts[OO1_INSERTS][3];
};

struct outcome {
	uint64_t checksums[MEASURED_PARTS];
	uint64_t visits; /* of the reverse traversal */
};

static struct work work;

static void prepare_work(uint32_t parts)
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

static void run_part(oo1_call *call, enum measured_part part, struct outcome *outcome)
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

static uint64_t checksum_of(const struct outcome *outcome)
{
	uint64_t h = OO1_FOLD_START;

	for (int part = 0; part < MEASURED_PARTS; part++)
		h = oo1_fold(h, outcome->checksums[part]);
	return h;
}

static struct samples warm[MEASURED_PARTS];
static uint64_t cold[MEASURED_PARTS];

/* All rounds; the outcome of every round must be the same. */
static struct outcome run_rounds(oo1_call *volatile call)
{
	struct outcome first = {0};

	for (int part = 0; part < MEASURED_PARTS; part++)
		samples_begin(&warm[part], 1);
	for (int round = 0; round < OO1_ROUNDS; round++) {
		struct outcome outcome = {0};

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

static void print_oo1_row(const char *name, const struct outcome *outcome)
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

/* ---- the rows ---- */

static void row_one_domain(void)
{
	struct outcome outcome;

	make_database(OO1_PARTS);
	outcome = run_rounds(near_call);
	print_oo1_row("oo1-one-domain", &outcome);
	drop_database(OO1_PARTS);
}

/* Runs the client against a database process over the two ends in client_link and database_link. */
static void row_two_processes(const char *name)
{
	struct message end = {OO1_RESULT, {0}};
	struct outcome outcome;
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0)
		serve(OO1_PARTS);
	remote_call(OO1_DIGEST, 0, 0, 0); /* waits until the database is made */
	outcome = run_rounds(remote_call);
	link_send(&client_link, &end);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	print_oo1_row(name, &outcome);
}

static void row_sockets(void)
{
	int ends[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	client_link = (struct link){.socket = ends[0]};
	database_link = (struct link){.socket = ends[1]};
	row_two_processes("oo1-sockets");
	close(ends[0]);
	close(ends[1]);
}

static void row_shared_memory(void)
{
	struct mailbox *mailbox = shared_page();

	client_link = (struct link){.side = 0, .mailbox = mailbox};
	database_link = (struct link){.side = 1, .mailbox = mailbox};
	row_two_processes("oo1-shared-memory");
	munmap(mailbox, 4096);
}

void rows_oo1(void)
{
	prepare_work(OO1_PARTS);
	if (row_wanted("oo1-one-domain"))
		row_one_domain();
	if (row_wanted("oo1-sockets"))
		row_sockets();
	if (row_wanted("oo1-shared-memory"))
		row_shared_memory();
}

void oo1_print_reference(void)
{
	static const uint32_t sizes[] = {1000, 20000, 200000};
	struct oo1_random random = oo1_stream(1);

	for (int i = 0; i < 3; i++)
		peer_print("stream(1) %d: 0x%016llx", i, (unsigned long long)oo1_next(&random));
	for (int i = 0; i < 3; i++) {
		struct outcome outcome;

		prepare_work(sizes[i]);
		make_database(sizes[i]);
		peer_print("parts %u size %zu digest 0x%016llx", sizes[i], oo1_size(sizes[i]),
			   (unsigned long long)oo1_digest(near_database));
		peer_print("  first lookup %u, forward from %u, reverse from %u", work.ids[0], work.forward_start,
			   work.reverse_start);
		outcome = run_rounds(near_call);
		peer_print("  digest after the rounds 0x%016llx", (unsigned long long)oo1_digest(near_database));
		for (int part = 0; part < MEASURED_PARTS; part++)
			peer_print("  %s 0x%016llx", part_names[part], (unsigned long long)outcome.checksums[part]);
		peer_print("  reverse visits %llu, checksum 0x%016llx", (unsigned long long)outcome.visits,
			   (unsigned long long)checksum_of(&outcome));
		drop_database(sizes[i]);
	}
}
