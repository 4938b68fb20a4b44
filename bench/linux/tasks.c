/*
 * Threads and processes: created, run to their immediate end, and reaped.
 *
 * task-create-exit starts /nothing, a static program of one page that only exits (nothing.c), by vfork and exec, the
 * cheapest way Linux has; the program is in the page cache. fork-exit-wait copies this process instead.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"

enum { ROUNDS = 301, WARM_UP = 3 };

static struct samples samples;

static void *return_at_once(void *argument)
{
	return argument;
}

static void thread_once(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, return_at_once, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void reap(pid_t child)
{
	int status;

	CHECK(child > 0);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Runs a program to its end. */
static void run(const char *path)
{
	char *const arguments[] = {(char *)path, NULL};
	char *const environment[] = {NULL};
	pid_t child = vfork();

	if (child == 0) {
		execve(path, arguments, environment);
		_exit(127);
	}
	reap(child);
}

static void task_once(void)
{
	run("/nothing");
}

/* The program with eight shared objects (bench/link/eight), bound lazily: all of them are called. */
static void eight_once(void)
{
	run("/eight");
}

static void fork_once(void)
{
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	reap(child);
}

static void row_of(const char *name, void (*once)(void))
{
	if (!row_wanted(name))
		return;
	samples_begin(&samples, 1);
	for (int round = 0; round < WARM_UP; round++)
		once();
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = ticks_now();

		once();
		samples_add(&samples, ticks_now() - start);
	}
	row_print(name, &samples);
}

void rows_tasks(void)
{
	row_of("thread-create-delete", thread_once);
	row_of("task-create-exit", task_once);
	row_of("fork-exit-wait", fork_once);
	if (access("/eight", X_OK) == 0) /* without it Linux was prepared by hand */
		row_of("dynamic-start-8", eight_once);
}
