/* Memory by powers of two from objects of the system, numbers from text, sorting, the end. */
#include "decimal.h"
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

static long double power_of_two(long times)
{
	long double value = 1;
	for (; times > 0; times--)
		value *= 2;
	return value;
}

/* A word, whatever the case of its letters. */
static int starts_with(const char *s, const char *word)
{
	for (; *word; s++, word++)
		if ((*s | 32) != *word)
			return 0;
	return 1;
}

/* The exponent behind a number, if there is one; what is far beyond any double is cut off. */
static long exponent_of(const char **s, char letter)
{
	const char *at = *s + 1;
	int negative;
	long value = 0;

	if ((**s | 32) != letter)
		return 0;
	negative = *at == '-';
	if (*at == '-' || *at == '+')
		at++;
	if (digit(*at) >= 10)
		return 0;
	for (; digit(*at) < 10; at++)
		value = value < 1000000000L ? value * 10 + digit(*at) : value;
	*s = at;
	return negative ? -value : value;
}

/* The digits of a number, of base 10 or 16, without zeros before the first; a last one that is not zero stands for all that have no room. */
struct number {
	int count, any;
	/* How far the first digit stands before the point. */
	long before;
	char digits[DECIMAL_DIGITS_READ];
};

static struct number number_of(const char **s, int base)
{
	struct number n = { 0 };
	int point = 0;
	for (;; ++*s) {
		int value = digit(**s);
		if (**s == '.' && !point) {
			point = 1;
			continue;
		}
		if (value >= base)
			return n;
		n.any = 1;
		n.before += !point && (n.count > 0 || value > 0);
		n.before -= point && n.count == 0 && value == 0;
		if (n.count == (int)sizeof n.digits)
			n.digits[n.count - 1] |= value > 0;
		else if (n.count > 0 || value > 0)
			n.digits[n.count++] = (char)('0' + value);
	}
}

double strtod(const char *s, char **end)
{
	const char *start = s;
	struct number n;
	double value;
	int negative, hexadecimal;

	s = spaces(s);
	negative = *s == '-';
	if (*s == '-' || *s == '+')
		s++;
	if (starts_with(s, "inf") || starts_with(s, "nan")) {
		value = (*s | 32) == 'i' ? __builtin_inf() : __builtin_nan("");
		s += starts_with(s, "infinity") ? 8 : 3;
		goto done;
	}
	hexadecimal = s[0] == '0' && (s[1] | 32) == 'x' && digit(s[2 + (s[2] == '.')]) < 16;
	if (hexadecimal)
		s += 2;
	n = number_of(&s, hexadecimal ? 16 : 10);
	if (!n.any) {
		s = start;
		negative = 0;
		value = 0;
	} else if (hexadecimal) {
		unsigned long head = 0;
		long power = exponent_of(&s, 'p') + 4 * n.before;
		/* All that matters of 60 bits and more is whether they are zero. One operation rounds. */
		for (int i = 0; i < 15; i++)
			head = head * 16 + (unsigned)(i < n.count ? n.digits[i] - '0' : 0);
		for (int i = 15; i < n.count; i++)
			head |= n.digits[i] != '0';
		power = (power > 2000 ? 2000 : power < -2000 ? -2000 : power) - 60;
		value = (double)((long double)head * (power < 0 ? 1 / power_of_two(-power) : power_of_two(power)));
	} else {
		long power = exponent_of(&s, 'e') + n.before - 1;
		value = n.count ? decimal_nearest(n.digits, n.count, power > 1000 ? 1000 : power < -1000 ? -1000 : (int)power) : 0;
	}
	if (n.count && (value > __DBL_MAX__ || value < __DBL_MIN__))
		error_number = ERANGE;
done:
	if (end)
		*end = (char *)s;
	return negative ? -value : value;
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
