/*
 * Compares printf and strtod of modules/libc, whose names begin with ours_ here, with those of the host, whose C library is known to be exact.
 * Arguments: how many values, and a seed. Prints each difference, and how many there are.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int ours_snprintf(char *, size_t, const char *, ...);
double ours_strtod(const char *, char **);

/* What the library asks of the system. */
long ours_sys_write(const void *from, unsigned long bytes) { return write(1, from, bytes); }
long ours_sys_read(void *to, unsigned long bytes) { (void)to, (void)bytes; return 0; }
void *ours_sys_object(unsigned long bytes) { return malloc(bytes); }
void ours_sys_delete(void *object) { free(object); }
unsigned long ours_sys_clock(unsigned long *since_1970) { return *since_1970 = 0; }
void *ours___dso_handle;
void ours_sys_exit(long status) { _exit((int)status); }

static uint64_t state;
static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x2545f4914f6cdd1dULL;
}

static unsigned long differences;
static void differ(const char *what, const char *ours, const char *theirs)
{
	if (differences++ < 20)
		printf("%s: ours %s, the host's %s\n", what, ours, theirs);
}

static uint64_t bits_of(double value)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	return bits;
}

static double value_of(uint64_t bits)
{
	double value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

/* Values of all magnitudes, and those at which algorithms err: short decimal numbers, whole ones, halves, powers of two, the ends of the range. */
static double value(void)
{
	uint64_t random = next();
	switch (random % 8) {
	case 0: return (double)(int64_t)(next() % 2000001 - 1000000) / 1000;
	case 1: return (double)(next() >> next() % 64);
	case 2: return (double)(int64_t)(next() % 200001 - 100000) / 8;
	case 3: return value_of((next() % 2047) << 52 | (next() % 3 - 1 + (1UL << 52)) % (1UL << 52));
	case 4: return value_of(next() % (1UL << (next() % 53)));
	default: return value_of(next());
	}
}

static void read_back(const char *text)
{
	char *our_end, *their_end;
	double ours = ours_strtod(text, &our_end), theirs = strtod(text, &their_end);
	char a[64], b[64];
	if (our_end == their_end && (bits_of(ours) == bits_of(theirs) || (ours != ours && theirs != theirs)))
		return;
	snprintf(a, sizeof a, "%a to %ld", ours, (long)(our_end - text));
	snprintf(b, sizeof b, "%a to %ld", theirs, (long)(their_end - text));
	differ(text, a, b);
}

static void print(double number)
{
	static char ours[4000], theirs[4000];
	char form[16], *to = form;
	uint64_t random = next();
	int width = 0, precision, a, b;

	*to++ = '%';
	for (const char *flag = "-+ #0"; *flag; flag++, random >>= 3)
		if (random % 8 == 0)
			*to++ = *flag;
	strcpy(to, "*.*");
	to += 3;
	*to++ = "eEfFgGaA"[random % 8];
	precision = (int[]){ -1, 0, (int)(next() % 20), 16, 17, (int)(next() % 30), (int)(next() % 1200) }[next() % 7];
	width = next() % 4 ? 0 : (int)(next() % 50);
	*to = 0;
	a = ours_snprintf(ours, sizeof ours, form, width, precision, number);
	b = snprintf(theirs, sizeof theirs, form, width, precision, number);
	if (a != b || strcmp(ours, theirs) != 0)
		differ(form, ours, theirs);
	read_back(theirs);
}

/* The number half way between two doubles, with digits behind it. */
static void half(void)
{
	static char text[3000];
	uint64_t bits = next() % (2046UL << 52);
	long double middle = ((long double)value_of(bits) + value_of(bits + 1)) / 2;
	int length = snprintf(text, sizeof text - 20, "%.*Le", (int)(next() % 2 ? 1000 : next() % 1100), middle);
	read_back(text);
	char *exponent = strchr(text, 'e'), more[16];
	if (exponent && length > 0) {
		snprintf(more, sizeof more, "1%s", exponent);
		strcpy(exponent, more);
		read_back(text);
	}
}

int main(int count, char **arguments)
{
	unsigned long values = count > 1 ? strtoul(arguments[1], NULL, 0) : 1000;
	static const char *const texts[] = { "", "-", ".", "0x", "0x.", "0x.8p", "1e", "1e+", " +1.5e3x", "nan", "-NaN", "inf", "-INFINITY", "infinit", "0e999999999999", "1e999999999999",
		"1e-999999999999", "1.7976931348623159e308", "1.7976931348623158e308", "4.9406564584124654e-324", "2.4703282292062327e-324", "2.4703282292062328e-324",
		"0x1.fffffffffffff8p1023", "0x1.fffffffffffff7ffffffffffp1023", "0x1p-1075", "0x1.00000000000000000001p-1075", "0x0.0000000000001p-1022", "0x1.00000000000008p0", "0x1.000000000000080001p0",
		"000000000000000000000000000001e-5", "0.00000000000000000000000000000000000000001e41", "9007199254740993", "9007199254740992999", "1.00000000000000011102230246251565404236316680908203125" };
	state = (count > 2 ? strtoull(arguments[2], NULL, 0) : 1) | 1;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		read_back(texts[i]);
	for (unsigned long i = 0; i < values; i++) {
		print(value());
		if (i % 8 == 0)
			half();
	}
	printf("%lu values, %lu differences\n", values, differences);
	return differences > 0;
}
