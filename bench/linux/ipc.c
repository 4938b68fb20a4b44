/*
 * Round trips between two processes on one processor: one byte each way through a pair of pipes or a UNIX stream
 * socket, or a shared word handed to and fro with futex wait and wake; and between two threads, with POSIX semaphores.
 *
 * Linux has two levels here. At first the woken process waits until the waker sleeps; when the scheduler's accounts
 * of the two have drifted a millisecond apart, each wake-up preempts the waker, for the rest of the run. That makes
 * pipe and futex dearer and the socket cheaper. The rows show the better level, and both beside it.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"

enum { BATCH = 50, ROUNDS = 101 };

static struct samples samples;

void read_all(int file, void *buffer, size_t size)
{
	for (char *at = buffer; size > 0;) {
		ssize_t done = read(file, at, size);

		CHECK(done > 0);
		at += done;
		size -= (size_t)done;
	}
}

void write_all(int file, const void *buffer, size_t size)
{
	for (const char *at = buffer; size > 0;) {
		ssize_t done = write(file, at, size);

		CHECK(done > 0);
		at += done;
		size -= (size_t)done;
	}
}

void futex_wait_while(volatile uint32_t *word, uint32_t value)
{
	while (*word == value)
		syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

void futex_wake_one(volatile uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void *shared_page(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(page != MAP_FAILED);
	return page;
}

static void expect_clean_exit(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Measures round trips over two descriptors to a child that echoes on two others until end of file. */
static void row_stream(const char *name, int near_read, int near_write, int far_read, int far_write)
{
	char byte = 'x';
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		close(near_read);
		close(near_write);
		while (read(far_read, &byte, 1) == 1)
			CHECK(write(far_write, &byte, 1) == 1);
		_exit(0);
	}
	close(far_read);
	close(far_write);
	samples_begin(&samples, BATCH);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = ticks_now();

		for (int i = 0; i < BATCH; i++) {
			CHECK(write(near_write, &byte, 1) == 1);
			CHECK(read(near_read, &byte, 1) == 1);
		}
		samples_add(&samples, ticks_now() - start);
	}
	close(near_read);
	close(near_write);
	expect_clean_exit(child);
	row_print_better(name, &samples);
}

static void row_pipe(void)
{
	int out[2], back[2];

	CHECK(pipe(out) == 0 && pipe(back) == 0);
	row_stream("ipc-pipe", back[0], out[1], out[0], back[1]);
}

static void row_socket(void)
{
	int ends[2], near_copy, far_copy;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	near_copy = dup(ends[0]);
	far_copy = dup(ends[1]);
	CHECK(near_copy >= 0 && far_copy >= 0);
	row_stream("ipc-socket", ends[0], near_copy, ends[1], far_copy);
}

/* The word says whose turn it is. */
enum turn { NEAR = 0, FAR = 1, OVER = 2 };

static void row_futex(void)
{
	volatile uint32_t *turn = shared_page();
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		for (;;) {
			futex_wait_while(turn, NEAR);
			if (*turn == OVER)
				_exit(0);
			*turn = NEAR;
			futex_wake_one(turn);
		}
	}
	samples_begin(&samples, BATCH);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = ticks_now();

		for (int i = 0; i < BATCH; i++) {
			*turn = FAR;
			futex_wake_one(turn);
			futex_wait_while(turn, FAR);
		}
		samples_add(&samples, ticks_now() - start);
	}
	*turn = OVER;
	futex_wake_one(turn);
	expect_clean_exit(child);
	munmap((void *)turn, 4096);
	row_print_better("ipc-futex", &samples);
}

/* The semaphores that two threads hand a token over by. */
static sem_t question, answer;

static void *answer_thread(void *rounds)
{
	for (uintptr_t left = (uintptr_t)rounds; left > 0; left--) {
		CHECK(sem_wait(&question) == 0);
		CHECK(sem_post(&answer) == 0);
	}
	return NULL;
}

static void row_semaphores(void)
{
	pthread_t thread;

	CHECK(sem_init(&question, 0, 0) == 0 && sem_init(&answer, 0, 0) == 0);
	CHECK(pthread_create(&thread, NULL, answer_thread, (void *)(uintptr_t)(BATCH * ROUNDS)) == 0);
	samples_begin(&samples, BATCH);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = ticks_now();

		for (int i = 0; i < BATCH; i++) {
			CHECK(sem_post(&question) == 0);
			CHECK(sem_wait(&answer) == 0);
		}
		samples_add(&samples, ticks_now() - start);
	}
	CHECK(pthread_join(thread, NULL) == 0);
	row_print_better("sem-round-trip", &samples);
}

void rows_ipc(void)
{
	if (row_wanted("sem-round-trip"))
		row_semaphores();
	if (row_wanted("ipc-pipe"))
		row_pipe();
	if (row_wanted("ipc-socket"))
		row_socket();
	if (row_wanted("ipc-futex"))
		row_futex();
}
