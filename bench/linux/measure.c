/*
 * The clock and the statistics.
 *
 * A row is the median over samples, a sample the TSC difference over a batch of equal operations. Batches are short
 * enough that most see no timer interrupt, so the median shows the work and not the tick. Under -icount a tick is an
 * instruction and nanoseconds mean nothing; under plain TCG the counter runs with the host's time, and its rate is
 * measured once against CLOCK_MONOTONIC_RAW.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "peer.h"

static uint64_t ticks_per_millisecond;
static const char *selected_rows;

static uint64_t clock_nanoseconds(void)
{
	struct timespec now;

	CHECK(clock_gettime(CLOCK_MONOTONIC_RAW, &now) == 0);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void measure_calibrate(void)
{
	uint64_t clock_start = clock_nanoseconds(), ticks_start = ticks_now();
	uint64_t clock_end, ticks_end;

	do {
		clock_end = clock_nanoseconds();
		ticks_end = ticks_now();
	} while (clock_end - clock_start < 300000000u);
	ticks_per_millisecond = (ticks_end - ticks_start) * 1000u / ((clock_end - clock_start) / 1000u);
	CHECK(ticks_per_millisecond > 0);
}

uint64_t measure_nanoseconds(uint64_t ticks)
{
	return ticks_per_millisecond == 0 ? 0 : ticks * 1000000u / ticks_per_millisecond;
}

void samples_begin(struct samples *samples, unsigned batch)
{
	memset(samples, 0, sizeof *samples); /* touched now, not while measuring */
	samples->batch = batch;
}

void samples_add(struct samples *samples, uint64_t ticks)
{
	CHECK(samples->count < SAMPLES_MAX);
	samples->ticks[samples->count++] = ticks;
}

static int compare_ticks(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static uint64_t median_of(uint64_t *ticks, unsigned count)
{
	CHECK(count > 0);
	qsort(ticks, count, sizeof ticks[0], compare_ticks);
	return ticks[count / 2];
}

uint64_t samples_median(struct samples *samples)
{
	return median_of(samples->ticks, samples->count);
}

uint64_t samples_minimum(struct samples *samples)
{
	CHECK(samples->count > 0);
	qsort(samples->ticks, samples->count, sizeof samples->ticks[0], compare_ticks);
	return samples->ticks[0];
}

uint64_t samples_mean(const struct samples *samples)
{
	uint64_t sum = 0;

	CHECK(samples->count > 0);
	for (unsigned i = 0; i < samples->count; i++)
		sum += samples->ticks[i];
	return sum / samples->count;
}

static unsigned long long per_operation(const struct samples *samples, uint64_t ticks)
{
	return (ticks + samples->batch / 2) / samples->batch;
}

/* Prints the row whose result is `ticks` (of a batch), with `details` behind the counts. */
static void print_row(const char *name, struct samples *samples, uint64_t ticks, const char *details)
{
	char time[32] = "";

	if (ticks_per_millisecond != 0)
		snprintf(time, sizeof time, " ns=%llu", per_operation(samples, measure_nanoseconds(ticks)));
	peer_print("row=%s ticks=%llu min=%llu n=%u%s%s", name, per_operation(samples, ticks),
		   per_operation(samples, samples_minimum(samples)), samples->count * samples->batch, details, time);
}

void row_print(const char *name, struct samples *samples)
{
	print_row(name, samples, samples_median(samples), "");
}

void row_print_as(const char *name, struct samples *samples, uint64_t ticks, const char *details)
{
	print_row(name, samples, ticks, details);
}

void row_print_better(const char *name, struct samples *samples)
{
	uint64_t early, late;
	char details[80];

	CHECK(samples->count >= 2 * SAMPLES_WINDOW);
	early = median_of(samples->ticks, SAMPLES_WINDOW);
	late = median_of(samples->ticks + samples->count - SAMPLES_WINDOW, SAMPLES_WINDOW);
	snprintf(details, sizeof details, " early=%llu late=%llu", per_operation(samples, early),
		 per_operation(samples, late));
	print_row(name, samples, early < late ? early : late, details);
}

void rows_select(const char *comma_separated)
{
	selected_rows = comma_separated;
}

int row_wanted(const char *name)
{
	size_t length = strlen(name);
	const char *at = selected_rows;

	if (at == NULL || *at == '\0')
		return 1;
	for (; (at = strstr(at, name)) != NULL; at += length) {
		int starts = at == selected_rows || at[-1] == ',';

		if (starts && (at[length] == '\0' || at[length] == ','))
			return 1;
	}
	return 0;
}
