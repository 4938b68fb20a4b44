/*
 * The disk: what a page costs that comes from a file or is made durable in one. Only in the mode `disk`, whose machine
 * has 128 MiB of memory and an empty ext4 file system on virtio-blk.
 *
 * Each row of Gondwana (bench/micro/src/disk.rs) is done here in several ways: by calls and by a mapping. Each way
 * is a row of its own, and the one with the lowest median is printed once more, under the name of Gondwana's row.
 *
 * Where instructions are counted the clock goes on while nobody runs. So a process of the policy SCHED_IDLE runs
 * whenever all others wait, and the ticks that it counts for itself are taken off. It shares the memory of this
 * process, as the kernel's own idle task would borrow it, and not the table of files, which would make calls dearer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"

enum {
	PAGE = 4096,
	BATCH = 128,  /* pages of a sample */
	COUNT = 60,   /* samples of a row that reads */
	DATA = 16384, /* pages of the file that is read; the first half in order, the second one at random */
	HALF = DATA / 2,
	TOGETHER = 256, /* pages that one sync makes durable */
	WRITTEN = 4096, /* pages of the file that is written */
	SYNCS = 48,	/* samples of a row that writes */
	CHUNK = 16,	/* pages of a pread of 64 KiB */
	LARGE = 262144, /* pages of the file that is eight times the memory */
	LARGE_COUNT = 64, /* samples of its rows: all pages in order, or as many at random a sample as others read */
	INTERRUPTED = 200, /* ticks: a look at the clock that comes later than this was interrupted */
};

#define MOUNTED "/disk"
static const char device[] = "/dev/vda", data_name[] = MOUNTED "/data", written_name[] = MOUNTED "/written",
		  large_name[] = MOUNTED "/large";

/* ---- the machine ---- */

/* Debian's kernel has these apart, in the order in which they need one another; those not there are part of it. */
static const char *const modules[] = {
	"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk",
	"crc16", "crc32c_generic", "crc32c-intel", "mbcache", "jbd2", "ext4",
};

static void load_module(const char *name)
{
	char path[64];
	int file;

	snprintf(path, sizeof path, "/modules/%s.ko", name);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return;
	CHECK(syscall(SYS_finit_module, file, "", 0) == 0);
	close(file);
}

static void mount_disk(void)
{
	CHECK(mount(device, MOUNTED, "ext4", MS_NOATIME, NULL) == 0);
}

static void remount_disk(void)
{
	CHECK(umount(MOUNTED) == 0);
	mount_disk();
}

static void set_up(void)
{
	int scheduler;

	for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
		load_module(modules[i]);
	for (int tries = 0; access(device, F_OK) != 0; tries++) {
		CHECK(tries < 100);
		usleep(100000);
	}
	mkdir("/sys", 0555);
	CHECK(mount("sysfs", "/sys", "sysfs", 0, NULL) == 0);
	/* Nobody else uses the disk, so there is nothing to put in order: without a scheduler a request is cheaper. */
	scheduler = open("/sys/block/vda/queue/scheduler", O_WRONLY | O_CLOEXEC);
	CHECK(scheduler >= 0);
	write_all(scheduler, "none", 4);
	close(scheduler);
	mkdir(MOUNTED, 0755);
	mount_disk();
}

/* ---- ticks in which nobody runs ---- */

static volatile int is_over;
static volatile uint64_t waited;
static pid_t waiter;

static int wait_while_nobody_runs(void *unused)
{
	uint64_t before = ticks_now();

	(void)unused;
	while (!is_over) {
		uint64_t now = ticks_now();

		if (now - before < INTERRUPTED)
			waited += now - before;
		before = now;
	}
	return 0;
}

static void idle_begin(void)
{
	static char stack[16384] __attribute__((aligned(16)));
	const struct sched_param none = {0};

	is_over = 0;
	waiter = clone(wait_while_nobody_runs, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
	CHECK(waiter > 0);
	CHECK(sched_setscheduler(waiter, SCHED_IDLE, &none) == 0);
}

static void idle_end(void)
{
	is_over = 1;
	CHECK(waitpid(waiter, NULL, 0) == waiter);
}

/* The clock without what was waited while there was such a process. */
static uint64_t busy_ticks(void)
{
	return ticks_now() - waited;
}

/* How often this process has waited. */
static uint64_t waits_now(void)
{
	struct rusage usage;

	CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
	return (uint64_t)usage.ru_nvcsw;
}

/* ---- ways ---- */

/* A way to do a row's work; the row's name and `name` together are the name of the way's own row. */
struct way {
	const char *name;
	void (*begin)(void);
	/* Reads the first word of a page, */
	uint64_t (*read)(uint64_t page);
	/* or changes so many pages from one on and makes them durable. */
	void (*write)(uint64_t first, uint64_t pages, uint64_t stamp);
	void (*end)(void);
	int is_direct; /* leaves nothing in memory, so it is no peer */
};

static struct samples samples, best;
static uint64_t waits; /* while the samples were taken */
static uint64_t moved; /* bytes that the disk moved for a page, in rows of the large file */
static char buffer[TOGETHER * PAGE] __attribute__((aligned(PAGE)));
static int file = -1;
static uint64_t file_pages;
static char *mapping;
/* The file that is read. */
static const char *read_name = data_name;
static uint64_t read_pages_all = DATA;

static void open_file(int flags)
{
	const char *name = flags & O_RDWR ? written_name : read_name;

	file_pages = flags & O_RDWR ? WRITTEN : read_pages_all;
	file = open(name, flags | O_CLOEXEC);
	CHECK(file >= 0);
}

static void open_to_read(void)
{
	open_file(O_RDONLY);
}

static void open_direct_to_read(void)
{
	open_file(O_RDONLY | O_DIRECT);
}

static void open_to_write(void)
{
	open_file(O_RDWR);
}

static void open_direct_to_write(void)
{
	open_file(O_RDWR | O_DIRECT);
}

static void map(int protection)
{
	mapping = mmap(NULL, file_pages * PAGE, protection, MAP_SHARED, file, 0);
	CHECK(mapping != MAP_FAILED);
}

static void map_to_read(void)
{
	open_to_read();
	map(PROT_READ);
}

static void map_for_random_reads(void)
{
	map_to_read();
	CHECK(madvise(mapping, file_pages * PAGE, MADV_RANDOM) == 0);
}

static void map_to_write(void)
{
	open_to_write();
	map(PROT_READ | PROT_WRITE);
}

static void close_file(void)
{
	if (mapping != NULL)
		CHECK(munmap(mapping, file_pages * PAGE) == 0);
	mapping = NULL;
	CHECK(close(file) == 0);
}

static uint64_t first_word(const char *page)
{
	return *(const volatile uint64_t *)page;
}

static uint64_t read_by_pread(uint64_t page)
{
	CHECK(pread(file, buffer, PAGE, (off_t)(page * PAGE)) == PAGE);
	return first_word(buffer);
}

static uint64_t read_by_large_pread(uint64_t page)
{
	if (page % CHUNK == 0)
		CHECK(pread(file, buffer, CHUNK * PAGE, (off_t)(page * PAGE)) == CHUNK * PAGE);
	return first_word(buffer + page % CHUNK * PAGE);
}

static uint64_t read_by_mapping(uint64_t page)
{
	return first_word(mapping + page * PAGE);
}

static void stamp_pages(char *pages, uint64_t count, uint64_t stamp)
{
	for (uint64_t page = 0; page < count; page++)
		*(volatile uint64_t *)(pages + page * PAGE) = stamp;
}

static void write_by_pwrite(uint64_t first, uint64_t pages, uint64_t stamp)
{
	stamp_pages(buffer, pages, stamp);
	CHECK(pwrite(file, buffer, pages * PAGE, (off_t)(first * PAGE)) == (ssize_t)(pages * PAGE));
	CHECK(fdatasync(file) == 0);
}

static void write_by_msync(uint64_t first, uint64_t pages, uint64_t stamp)
{
	stamp_pages(mapping + first * PAGE, pages, stamp);
	CHECK(msync(mapping + first * PAGE, pages * PAGE, MS_SYNC) == 0);
}

/* As msync, but the time of the change need not be durable. */
static void write_by_mapping(uint64_t first, uint64_t pages, uint64_t stamp)
{
	stamp_pages(mapping + first * PAGE, pages, stamp);
	CHECK(fdatasync(file) == 0);
}

#define BY_PREAD {.name = "-pread", .begin = open_to_read, .read = read_by_pread, .end = close_file}
#define BY_LARGE_PREAD {.name = "-pread-64k", .begin = open_to_read, .read = read_by_large_pread, .end = close_file}
#define BY_MMAP {.name = "-mmap", .begin = map_to_read, .read = read_by_mapping, .end = close_file}
#define BY_MMAP_RANDOM \
	{.name = "-mmap-advised", .begin = map_for_random_reads, .read = read_by_mapping, .end = close_file}
#define END {.name = NULL}

static const struct way in_turn[] = {
	BY_PREAD, BY_LARGE_PREAD, BY_MMAP,
	{"-direct-64k", open_direct_to_read, read_by_large_pread, NULL, close_file, 1},
	END,
};
static const struct way at_random[] = {
	BY_PREAD, BY_MMAP, BY_MMAP_RANDOM,
	{"-direct", open_direct_to_read, read_by_pread, NULL, close_file, 1},
	END,
};
/* Of the large file, whose rows take long, only what may be the best, and what is asked for. */
static const struct way scan[] = {BY_LARGE_PREAD, BY_MMAP, END};
static const struct way probe[] = {BY_PREAD, BY_MMAP, BY_MMAP_RANDOM, END};
static const struct way cached_in_turn[] = {BY_PREAD, BY_LARGE_PREAD, BY_MMAP, END};
static const struct way cached_at_random[] = {BY_PREAD, BY_MMAP, END};
static const struct way durable[] = {
	{"-pwrite", open_to_write, NULL, write_by_pwrite, close_file, 0},
	{"-msync", map_to_write, NULL, write_by_msync, close_file, 0},
	{"-mmap", map_to_write, NULL, write_by_mapping, close_file, 0},
	{"-direct", open_direct_to_write, NULL, write_by_pwrite, close_file, 1},
	END,
};

/* ---- files ---- */

static void make_file(const char *name, uint64_t pages)
{
	int made = open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);

	CHECK(made >= 0);
	CHECK(posix_fallocate(made, 0, (off_t)(pages * PAGE)) == 0);
	for (uint64_t first = 0; first < pages; first += TOGETHER) {
		memset(buffer, 0, sizeof buffer);
		for (uint64_t page = 0; page < TOGETHER; page++)
			*(uint64_t *)(buffer + page * PAGE) = first + page;
		write_all(made, buffer, sizeof buffer);
	}
	CHECK(fsync(made) == 0);
	CHECK(close(made) == 0);
}

/* How many of the pages from `first` on are in memory. */
static uint64_t resident(uint64_t first, uint64_t pages)
{
	static unsigned char in_memory[DATA];
	int seen = open(data_name, O_RDONLY | O_CLOEXEC);
	char *view = mmap(NULL, DATA * PAGE, PROT_READ, MAP_SHARED, seen, 0);
	uint64_t count = 0;

	CHECK(seen >= 0 && view != MAP_FAILED);
	CHECK(mincore(view, DATA * PAGE, in_memory) == 0);
	for (uint64_t page = first; page < first + pages; page++)
		count += in_memory[page] & 1;
	CHECK(munmap(view, DATA * PAGE) == 0);
	close(seen);
	return count;
}

static void forget_pages(void)
{
	int forgotten = open(data_name, O_RDONLY | O_CLOEXEC);

	CHECK(forgotten >= 0);
	CHECK(posix_fadvise(forgotten, 0, 0, POSIX_FADV_DONTNEED) == 0);
	close(forgotten);
	CHECK(resident(0, DATA) == 0);
}

/* ---- rows ---- */

struct row {
	const char *name;
	const struct way *ways;
	void (*run)(const struct row *row, const struct way *way);
	int is_random, is_cached, is_mean;
	uint64_t together; /* pages of a sync */
};

static void read_pages(const struct row *row, const struct way *way)
{
	uint64_t first = row->is_random ? HALF : 0, at = 1;

	samples_begin(&samples, BATCH);
	waits = waits_now();
	for (int sample = 0; sample < COUNT; sample++) {
		uint64_t start = busy_ticks();

		for (uint64_t turn = (uint64_t)sample * BATCH; turn < ((uint64_t)sample + 1) * BATCH; turn++) {
			/* Each number below a power of two once. */
			at = row->is_random ? (at * 5 + 12345) % HALF : turn;
			CHECK(way->read(first + at) == first + at);
		}
		samples_add(&samples, busy_ticks() - start);
	}
	waits = waits_now() - waits;
}

/* Whether the pages of a row are in memory; of those at random, as many as it reads. */
static int is_cached(const struct row *row)
{
	return row->is_random ? resident(HALF, HALF) >= COUNT * BATCH : resident(0, COUNT * BATCH) == COUNT * BATCH;
}

static void run_read(const struct row *row, const struct way *way)
{
	forget_pages();
	way->begin();
	idle_begin();
	read_pages(row, way);
	/* The kernel may have taken back some of them, to have larger pieces of free memory. */
	for (int tries = 0; row->is_cached && (tries < 1 || !is_cached(row)); tries++) {
		CHECK(tries < 10);
		read_pages(row, way);
	}
	if (row->is_cached)
		read_pages(row, way);
	idle_end();
	way->end();
}

/* Bytes that the disk has moved since the start. */
static uint64_t moved_now(void)
{
	unsigned long long reads, writes;
	FILE *stat = fopen("/sys/block/vda/stat", "re");

	CHECK(stat != NULL);
	CHECK(fscanf(stat, "%*s %*s %llu %*s %*s %*s %llu", &reads, &writes) == 2);
	fclose(stat);
	return (reads + writes) * 512;
}

/* The pages of the large file: all in order, or some at random. */
static void run_large(const struct row *row, const struct way *way)
{
	uint64_t batch = row->is_random ? BATCH : LARGE / LARGE_COUNT, at = 1, before;

	if (access(large_name, F_OK) != 0)
		make_file(large_name, LARGE);
	remount_disk(); /* nothing of it is known any more */
	read_name = large_name;
	read_pages_all = LARGE;
	way->begin();
	idle_begin();
	samples_begin(&samples, (unsigned)batch);
	waits = waits_now();
	before = moved_now();
	for (uint64_t sample = 0; sample < LARGE_COUNT; sample++) {
		uint64_t start = busy_ticks();

		for (uint64_t turn = sample * batch; turn < (sample + 1) * batch; turn++) {
			at = row->is_random ? (at * 5 + 12345) % LARGE : turn;
			CHECK(way->read(at) == at);
		}
		samples_add(&samples, busy_ticks() - start);
	}
	moved = (moved_now() - before) / (batch * LARGE_COUNT);
	waits = waits_now() - waits;
	idle_end();
	way->end();
	read_name = data_name;
	read_pages_all = DATA;
}

static void run_sync(const struct row *row, const struct way *way)
{
	uint64_t at = 1;

	if (access(written_name, F_OK) != 0)
		make_file(written_name, WRITTEN);
	way->begin();
	idle_begin();
	samples_begin(&samples, (unsigned)row->together);
	waits = waits_now();
	for (uint64_t stamp = 1; stamp <= SYNCS; stamp++) {
		uint64_t start;

		at = (at * 5 + 12345) % (WRITTEN / row->together);
		start = busy_ticks();
		way->write(at * row->together, row->together, stamp);
		samples_add(&samples, busy_ticks() - start);
	}
	waits = waits_now() - waits;
	idle_end();
	way->end();
}

static void print_moved(const char *name, uint64_t bytes)
{
	peer_print("row=%s-moved bytes=%llu", name, (unsigned long long)bytes);
}

static void run_row(const struct row *row)
{
	const char *best_way = NULL;
	uint64_t ticks, least = UINT64_MAX, best_moved = 0;
	int is_wanted = row_wanted(row->name);
	char name[64], details[96];

	for (const struct way *way = row->ways; way->name != NULL; way++) {
		snprintf(name, sizeof name, "%s%s", row->name, way->name);
		if (!is_wanted && !row_wanted(name))
			continue;
		row->run(row, way);
		ticks = row->is_mean ? samples_mean(&samples) : samples_median(&samples);
		if (!way->is_direct && ticks < least) {
			best_way = way->name + 1;
			best = samples;
			least = ticks;
			best_moved = moved;
		}
		snprintf(details, sizeof details, " median=%llu mean=%llu waits=%llu",
			 (unsigned long long)samples_median(&samples) / samples.batch,
			 (unsigned long long)samples_mean(&samples) / samples.batch, (unsigned long long)waits);
		row_print_as(name, &samples, ticks, details);
		if (row->run == run_large)
			print_moved(name, moved);
	}
	if (!is_wanted || best_way == NULL)
		return;
	snprintf(details, sizeof details, " way=%s", best_way);
	row_print_as(row->name, &best, least, details);
	if (row->run == run_large)
		print_moved(row->name, best_moved);
}

static const struct row rows[] = {
	{"disk-read-in-turn", in_turn, run_read, 0, 0, 1, 0},
	{"disk-read-at-random", at_random, run_read, 1, 0, 1, 0},
	{"disk-cached-in-turn", cached_in_turn, run_read, 0, 1, 0, 0},
	{"disk-cached-at-random", cached_at_random, run_read, 1, 1, 0, 0},
	{"disk-scan-8x", scan, run_large, 0, 0, 1, 0},
	{"disk-probe-8x", probe, run_large, 1, 0, 1, 0},
	{"disk-sync-1", durable, run_sync, 0, 0, 0, 1},
	{"disk-sync-256", durable, run_sync, 0, 0, 0, TOGETHER},
};

void rows_disk(void)
{
	set_up();
	make_file(data_name, DATA);
	remount_disk(); /* nothing of it is known any more */
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		run_row(&rows[i]);
	CHECK(umount(MOUNTED) == 0);
}
