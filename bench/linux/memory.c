/*
 * Pages and objects: an anonymous mapping of one page made, touched and removed; the same with a named file on tmpfs
 * (the nearest thing Linux has to an object: it has a name, a length, and bytes that other processes can map); and
 * the first touch of a further page of a mapping that exists.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "peer.h"

enum { PAGE = 4096, LEAF = 2 << 20 };

static struct samples samples;

static void touch(void *page)
{
	*(volatile char *)page = 1;
}

static void row_object(void)
{
	enum { BATCH = 20, ROUNDS = 101 };

	samples_begin(&samples, BATCH);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = ticks_now();

		for (int i = 0; i < BATCH; i++) {
			void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			CHECK(page != MAP_FAILED);
			touch(page);
			CHECK(munmap(page, PAGE) == 0);
		}
		samples_add(&samples, ticks_now() - start);
	}
	row_print("object-create-touch-delete", &samples);
}

static void row_file(void)
{
	enum { BATCH = 20, ROUNDS = 101 };
	static const char name[] = "/tmp/object";

	samples_begin(&samples, BATCH);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = ticks_now();

		for (int i = 0; i < BATCH; i++) {
			int file = open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
			void *page;

			CHECK(file >= 0);
			CHECK(ftruncate(file, PAGE) == 0);
			page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
			CHECK(page != MAP_FAILED);
			CHECK(close(file) == 0);
			touch(page);
			CHECK(munmap(page, PAGE) == 0);
			CHECK(unlink(name) == 0);
		}
		samples_add(&samples, ticks_now() - start);
	}
	row_print("file-create-touch-delete", &samples);
}

/* Every sample touches one page; the first of each 2 MiB is left out, it may have to make a page-table leaf. */
static void row_first_touch(void)
{
	enum { LEAVES = 3 };
	char *range = mmap(NULL, (LEAVES + 1) * LEAF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *leaf = (char *)(((uintptr_t)range + LEAF - 1) & ~(uintptr_t)(LEAF - 1));

	CHECK(range != MAP_FAILED);
	madvise(range, (LEAVES + 1) * LEAF, MADV_NOHUGEPAGE); /* refused where there are no huge pages: just as well */
	samples_begin(&samples, 1);
	for (int i = 0; i < LEAVES; i++, leaf += LEAF) {
		touch(leaf);
		for (int page = 1; page < 300; page++) {
			uint64_t start = ticks_now();

			touch(leaf + page * PAGE);
			samples_add(&samples, ticks_now() - start);
		}
	}
	row_print("first-touch", &samples);
	CHECK(munmap(range, (LEAVES + 1) * LEAF) == 0);
}

void rows_memory(void)
{
	if (row_wanted("object-create-touch-delete"))
		row_object();
	if (row_wanted("file-create-touch-delete"))
		row_file();
	if (row_wanted("first-touch"))
		row_first_touch();
}
