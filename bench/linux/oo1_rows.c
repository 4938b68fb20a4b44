/*
 * The OO1 rows: the client of docs/spec/oo1.md (sections 6 and 7) over three ways to reach the database.
 *
 * oo1-one-domain calls it. In the other two the database lives in a process of its own, and a call is a message; the
 * database calls the client back for every part before it answers, so while a call is in progress the client serves
 * deliveries. Both ends use the same `link`: send one message, or take the next one.
 */
#define _GNU_SOURCE
#include "oo1_client.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"

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
		message.words[0] = oo1_client_deliver(message.words[0], message.words[1], message.words[2],
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

/* The database process: makes its database, then serves until a request that is none of the operations. */
static void serve(uint32_t parts)
{
	struct message message;

	oo1_make_database(parts);
	for (;;) {
		link_receive(&database_link, &message);
		if (message.operation == OO1_RESULT)
			_exit(0);
		message.words[0] =
			oo1_perform(message.operation, message.words[0], message.words[1], message.words[2], remote_deliver);
		message.operation = OO1_RESULT;
		link_send(&database_link, &message);
	}
}

/* ---- the rows ---- */

void *oo1_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

void oo1_memory_drop(void *memory, size_t bytes)
{
	CHECK(munmap(memory, bytes) == 0);
}

/* Runs the client against a database process over the two ends in client_link and database_link. */
static void row_two_processes(const char *name)
{
	struct message end = {OO1_RESULT, {0}};
	struct oo1_outcome outcome;
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0)
		serve(OO1_PARTS);
	remote_call(OO1_DIGEST, 0, 0, 0); /* waits until the database is made */
	outcome = oo1_run_rounds(remote_call);
	link_send(&client_link, &end);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	oo1_print_row(name, &outcome);
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
	oo1_prepare_work(OO1_PARTS);
	if (row_wanted("oo1-one-domain"))
		oo1_row_one_domain("oo1-one-domain");
	if (row_wanted("oo1-sockets"))
		row_sockets();
	if (row_wanted("oo1-shared-memory"))
		row_shared_memory();
}
