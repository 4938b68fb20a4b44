/*
 * The Linux peer of Gondwana's benchmarks: what its files share.
 *
 * One static program is /init of an initramfs. peer.c brings the system up and calls one function per group of rows:
 * calls.c (system calls), memory.c (pages and objects), ipc.c (round trips), tasks.c (threads and processes), disk.c
 * (files), oo1_rows.c (OO1 in one and in two processes, over the database of oo1.c and the client of oo1_client.c).
 * measure.c has the clock and prints rows.
 */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <stdint.h>

/* Ends the program (and with it the machine) with a message unless `value` is what a healthy system gives. */
#define CHECK(condition) ((condition) ? (void)0 : peer_fail(#condition, __FILE__, __LINE__))
void peer_fail(const char *what, const char *file, int line) __attribute__((noreturn));

/* Prints one formatted line to the result stream. */
void peer_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- measure.c ---- */

/* Reads the time stamp counter: instructions under -icount, host time otherwise. */
static inline uint64_t ticks_now(void)
{
	uint32_t low, high;

	__asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

enum { SAMPLES_MAX = 1024, SAMPLES_WINDOW = 20 };

/* Ticks of some repetitions of the same work; every sample is the ticks of `batch` operations. */
struct samples {
	uint64_t ticks[SAMPLES_MAX];
	unsigned count;
	unsigned batch;
};

/* Learns how many ticks a microsecond has; without this call rows print no `ns=`. */
void measure_calibrate(void);
/* Ticks in nanoseconds, 0 if the clock was not calibrated. */
uint64_t measure_nanoseconds(uint64_t ticks);
void samples_begin(struct samples *samples, unsigned batch);
void samples_add(struct samples *samples, uint64_t ticks);
/* The middle and the smallest sample (both of the whole batch). Sorts. */
uint64_t samples_median(struct samples *samples);
/* The mean, for work whose cost changes from sample to sample. */
uint64_t samples_mean(const struct samples *samples);
uint64_t samples_minimum(struct samples *samples);
/* Prints `row=NAME ticks=... min=... n=...`, per operation. */
void row_print(const char *name, struct samples *samples);
/* The same with `ticks` of a batch as its result, and `details` behind the counts: words with a space before each. */
void row_print_as(const char *name, struct samples *samples, uint64_t ticks, const char *details);
/*
 * The same for work whose cost settles at a second level while it runs: `ticks` is the lower of the medians of the
 * first and the last SAMPLES_WINDOW samples, which are printed too (`early=`, `late=`).
 */
void row_print_better(const char *name, struct samples *samples);
/* Whether the row was asked for (all are, unless `rows` names some). */
int row_wanted(const char *name);
void rows_select(const char *comma_separated);

/* ---- the groups ---- */
void rows_calls(void);
void rows_memory(void);
void rows_ipc(void);
void rows_tasks(void);
void rows_oo1(void);
void rows_disk(void);
/* Prints the reference table of docs/spec/oo1.md. */
void oo1_print_reference(void);

/* ---- shared by ipc.c and oo1_rows.c: a futex that two processes share ---- */
void futex_wait_while(volatile uint32_t *word, uint32_t value);
void futex_wake_one(volatile uint32_t *word);
/* One page both sides of a fork see. */
void *shared_page(void);
/* Reads or writes exactly `size` bytes. */
void read_all(int file, void *buffer, size_t size);
void write_all(int file, const void *buffer, size_t size);

#endif
