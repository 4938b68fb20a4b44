/* Memory by powers of two from objects of the system, numbers from text, sorting, the end. */
#include "libc.h"
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#undef errno
static int error_number;
int *__errno_location(void) { return &error_number; }

/* Each block has its size before it, in 16 bytes. Blocks up to 256 KiB come from the list of their size or from the
   end of the newest object; larger ones are objects of their own. */
struct block {
	size_t bytes;
	struct block *next;
};
#define HEAD 16
#define CLASSES 15
#define CHUNK (1UL << 20)
static struct block *lists[CLASSES];
static char *next_free, *chunk_end;

static int class_of(size_t bytes)
{
	int class = 0;
	for (size_t room = 32; room < bytes; room *= 2)
		class++;
	return class;
}

void *malloc(size_t wanted)
{
	struct block *block;
	size_t bytes = wanted + HEAD;
	int class = class_of(bytes);

	if (wanted > PTRDIFF_MAX)
		goto none;
	if (class >= CLASSES) {
		block = sys_object(bytes);
		if (!block)
			goto none;
		block->bytes = bytes;
		return (char *)block + HEAD;
	}
	block = lists[class];
	if (block) {
		lists[class] = block->next;
		return (char *)block + HEAD;
	}
	bytes = (size_t)32 << class;
	if ((size_t)(chunk_end - next_free) < bytes) {
		char *chunk = sys_object(CHUNK);
		if (!chunk)
			goto none;
		next_free = chunk;
		chunk_end = chunk + CHUNK;
	}
	block = (struct block *)next_free;
	next_free += bytes;
	block->bytes = bytes;
	return (char *)block + HEAD;
none:
	error_number = ENOMEM;
	return NULL;
}

void free(void *at)
{
	struct block *block;
	int class;

	if (!at)
		return;
	block = (struct block *)((char *)at - HEAD);
	class = class_of(block->bytes);
	if (class >= CLASSES) {
		sys_delete(block);
		return;
	}
	block->next = lists[class];
	lists[class] = block;
}

void *calloc(size_t count, size_t each)
{
	size_t bytes;
	void *at;

	if (__builtin_mul_overflow(count, each, &bytes))
		return NULL;
	at = malloc(bytes);
	return at ? memset(at, 0, bytes) : NULL;
}

void *realloc(void *old, size_t wanted)
{
	size_t room;
	void *new;

	if (!old)
		return malloc(wanted);
	room = ((struct block *)((char *)old - HEAD))->bytes - HEAD;
	if (wanted <= room && wanted * 4 >= room)
		return old;
	new = malloc(wanted);
	if (!new)
		return wanted <= room ? old : NULL;
	memcpy(new, old, wanted < room ? wanted : room);
	free(old);
	return new;
}

static void (*at_end[32])(void);
static int at_end_count;

int atexit(void (*f)(void))
{
	if (at_end_count == 32)
		return -1;
	at_end[at_end_count++] = f;
	return 0;
}

/* The header of the data of this instance: the table of instances and the routine that ends all of it (docs/spec/module-format.md). */
extern struct {
	void *self, *module, *table, *binder, *reach;
	void (*end)(void *table);
} __dso_handle;

void exit(int status)
{
	while (at_end_count > 0)
		at_end[--at_end_count]();
	if (__dso_handle.end)
		__dso_handle.end(__dso_handle.table);
	flush_all();
	sys_exit(status);
}

void abort(void)
{
	flush_all();
	sys_exit(134);
}

char *getenv(const char *name) { (void)name; return NULL; }
int system(const char *command) { (void)command; return command ? -1 : 0; }
int abs(int n) { return n < 0 ? -n : n; }
long labs(long n) { return n < 0 ? -n : n; }

static unsigned long random_state = 1;
void srand(unsigned seed) { random_state = seed; }
int rand(void)
{
	random_state = random_state * 6364136223846793005UL + 1442695040888963407UL;
	return (int)(random_state >> 33);
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 32;
	return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

static const char *spaces(const char *s)
{
	while (*s == ' ' || (*s >= '\t' && *s <= '\r'))
		s++;
	return s;
}

static unsigned long whole(const char *s, char **end, int base, int *negative, int *over)
{
	const char *start = s, *first;
	unsigned long value = 0;

	s = spaces(s);
	*negative = *s == '-';
	*over = 0;
	if (*s == '-' || *s == '+')
		s++;
	if ((base == 0 || base == 16) && s[0] == '0' && (s[1] | 32) == 'x' && digit(s[2]) < 16) {
		s += 2;
		base = 16;
	}
	if (base == 0)
		base = *s == '0' ? 8 : 10;
	for (first = s; digit(*s) < base; s++)
		*over |= __builtin_mul_overflow(value, (unsigned long)base, &value) |
			 __builtin_add_overflow(value, (unsigned long)digit(*s), &value);
	if (end)
		*end = (char *)(s == first ? start : s);
	return value;
}

unsigned long strtoul(const char *s, char **end, int base)
{
	int negative, over;
	unsigned long value = whole(s, end, base, &negative, &over);
	if (over) {
		error_number = ERANGE;
		return ULONG_MAX;
	}
	return negative ? -value : value;
}

long strtol(const char *s, char **end, int base)
{
	int negative, over;
	unsigned long value = whole(s, end, base, &negative, &over);
	if (over || value > (unsigned long)LONG_MAX + (unsigned)negative) {
		error_number = ERANGE;
		return negative ? LONG_MIN : LONG_MAX;
	}
	return (long)(negative ? -value : value);
}

long long strtoll(const char *s, char **end, int base) { return strtol(s, end, base); }
unsigned long long strtoull(const char *s, char **end, int base) { return strtoul(s, end, base); }
int atoi(const char *s) { return (int)strtol(s, NULL, 10); }
long atol(const char *s) { return strtol(s, NULL, 10); }

static long double raised(long double value, long double by, int times)
{
	for (; times > 0; times /= 2, by *= by)
		if (times & 1)
			value *= by;
	return value;
}

double strtod(const char *s, char **end)
{
	const char *start = s;
	unsigned long mantissa = 0;
	int exponent = 0, any = 0, point = 0, base = 10, negative, more = 0, more_negative;
	long double value;

	s = spaces(s);
	negative = *s == '-';
	if (*s == '-' || *s == '+')
		s++;
	if ((strncmp(s, "inf", 3) == 0) || (strncmp(s, "nan", 3) == 0)) {
		value = *s == 'i' ? __builtin_infl() : __builtin_nanl("");
		s += 3;
		goto done;
	}
	if (s[0] == '0' && (s[1] | 32) == 'x') {
		s += 2;
		base = 16;
	}
	for (;; s++) {
		if (*s == '.' && !point) {
			point = 1;
		} else if (digit(*s) < base) {
			any = 1;
			if (mantissa < ULONG_MAX / 16 - 16) {
				mantissa = mantissa * (unsigned)base + (unsigned)digit(*s);
				exponent -= point;
			} else {
				exponent += !point;
			}
		} else {
			break;
		}
	}
	if (!any) {
		if (end)
			*end = (char *)start;
		return 0;
	}
	if ((*s | 32) == (base == 16 ? 'p' : 'e')) {
		const char *at = s + 1;
		more_negative = *at == '-';
		if (*at == '-' || *at == '+')
			at++;
		if (digit(*at) < 10) {
			for (; digit(*at) < 10; at++)
				more = more < 100000 ? more * 10 + digit(*at) : more;
			more = more_negative ? -more : more;
			s = at;
		}
	}
	if (base == 16)
		value = raised(mantissa, exponent * 4 + more < 0 ? 0.5L : 2, abs(exponent * 4 + more));
	else if (exponent + more < 0)
		value = mantissa / raised(1, 10, -(exponent + more));
	else
		value = raised(mantissa, 10, exponent + more);
	if (mantissa == 0)
		value = 0;
done:
	if (end)
		*end = (char *)s;
	return (double)(negative ? -value : value);
}

double atof(const char *s) { return strtod(s, NULL); }

/* A heap sort: no memory, no bad cases. */
static void swap(char *a, char *b, size_t each)
{
	for (; each > 0; each--, a++, b++) {
		char c = *a;
		*a = *b;
		*b = c;
	}
}

static void sift(char *at, size_t from, size_t count, size_t each, int (*compare)(const void *, const void *))
{
	for (size_t child; (child = 2 * from + 1) < count; from = child) {
		if (child + 1 < count && compare(at + child * each, at + (child + 1) * each) < 0)
			child++;
		if (compare(at + from * each, at + child * each) >= 0)
			return;
		swap(at + from * each, at + child * each, each);
	}
}

void qsort(void *values, size_t count, size_t each, int (*compare)(const void *, const void *))
{
	for (size_t i = count / 2; i-- > 0;)
		sift(values, i, count, each, compare);
	for (size_t i = count; i-- > 1;) {
		swap(values, (char *)values + i * each, each);
		sift(values, 0, i, each, compare);
	}
}
