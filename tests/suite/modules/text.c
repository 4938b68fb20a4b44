/* What the C library does, seen from a client: returns the line of the first check that failed, or 0. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(what) do { if (!(what)) return __LINE__; } while (0)
static int comparisons;
static int up(const void *a, const void *b) { comparisons++; return *(const int *)a - *(const int *)b; }

static int prints(const char *expected, const char *format, ...)
{
	char text[200];
	va_list list;
	int n;
	va_start(list, format);
	n = vsnprintf(text, sizeof text, format, list);
	va_end(list);
	return n == (int)strlen(expected) && strcmp(text, expected) == 0;
}

int text_check(void)
{
	int values[] = { 5, 3, 9, -1, 7, 0, 2, 8 };
	void *blocks[200];
	jmp_buf out;
	char *end, *large;
	time_t then = 951827696;
	volatile int before;
	int e;

	CHECK(prints("1 two 3.00 x -5 ff 0x1f", "%d %s %.2f %c %ld %x %#x", 1, "two", 3.0, 'x', -5L, 255, 31));
	CHECK(prints("   42|42   |00042|+42", "%5d|%-5d|%05d|%+d", 42, 42, 42, 42));
	CHECK(prints("0.1 1e+20 3.14159265358979 1e-05 100000", "%g %g %.15g %g %g", 0.1, 1e20, 3.14159265358979, 1e-5, 1e5));
	CHECK(prints("1.500000e+00 -0.0001 inf nan 9.99", "%e %g %g %g %.2f", 1.5, -0.0001, INFINITY, (double)NAN, 9.994));
	CHECK(prints("10.0 0.50 123456789.12 0x1.8p+1", "%.1f %.2f %.2f %a", 9.96, 0.5, 123456789.125, 3.0));
	CHECK(prints("[ab] [   abc] [%] 18446744073709551615", "[%.2s] [%6s] [%%] %lu", "abc", "abc", ~0UL));
	CHECK(strtod("3.25e2x", &end) == 325 && *end == 'x');
	CHECK(strtod("-0x1p4", NULL) == -16 && strtod("1e-3", NULL) == 0.001 && strtod("0.1", NULL) == 0.1);
	CHECK(strtol("  -077", NULL, 0) == -63 && strtol("zz", NULL, 36) == 1295 && strtoul("ff", NULL, 16) == 255);
	errno = 0;
	CHECK(strtol("99999999999999999999", NULL, 10) == __LONG_MAX__ && errno == ERANGE);
	CHECK(strstr("hello", "llo") && strspn("aab", "a") == 2 && strcspn("abc", "c") == 2 && strrchr("abab", 'a')[1] == 'b');
	CHECK(isalpha('x') && !isdigit('x') && toupper('x') == 'X' && isspace('\n') && ispunct('!') && !isprint(7));
	qsort(values, 8, sizeof *values, up);
	for (int i = 1; i < 8; i++)
		CHECK(values[i - 1] <= values[i]);
	CHECK(comparisons > 7);
	for (int i = 0; i < 200; i++) {
		blocks[i] = malloc((size_t)i * 50);
		CHECK(blocks[i]);
		memset(blocks[i], i, (size_t)i * 50);
	}
	for (int i = 0; i < 200; i++)
		for (int j = 0; j < i * 50; j++)
			CHECK(((unsigned char *)blocks[i])[j] == (unsigned char)i);
	for (int i = 0; i < 200; i++)
		free(blocks[i]);
	large = malloc(3 << 20);
	CHECK(large);
	large[(3 << 20) - 1] = 1;
	large = realloc(large, 4 << 20);
	CHECK(large && large[(3 << 20) - 1] == 1);
	free(large);
	CHECK(floor(-1.5) == -2 && ceil(1.2) == 2 && fmod(7, 3) == 1 && sqrt(2) * sqrt(2) > 1.9999999);
	CHECK(pow(2, 10) == 1024 && pow(2, 0.5) == sqrt(2) && fabs(log(exp(1.5)) - 1.5) < 1e-15 && fabs(sin(1) - 0.8414709848078965) < 1e-15);
	CHECK(frexp(48, &e) == 0.75 && e == 6 && ldexp(0.75, 6) == 48 && atan2(1, 1) * 4 == M_PI);
	before = comparisons;
	if (setjmp(out) == 0)
		longjmp(out, 3);
	CHECK(before == comparisons);
	CHECK(gmtime(&then)->tm_year == 100 && gmtime(&then)->tm_mon == 1 && gmtime(&then)->tm_mday == 29 && mktime(gmtime(&then)) == then);
	CHECK(fopen("nothing", "r") == NULL && errno == ENOENT);
	return 0;
}

long text_mark(long n)
{
	static long marks;
	return marks += n;
}
