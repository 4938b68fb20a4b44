/* Each function has data of its own, so that there is a thunk before it. */
#include "argslib.h"

static long calls;

long sum_behind(struct large named, ...)
{
	va_list list;
	long sum = 0;

	calls++;
	for (int i = 0; i < 60; i++)
		sum = sum * 3 + named.word[i];
	va_start(list, named);
	for (int i = 0; i < 12; i++)
		sum = sum * 3 + va_arg(list, long);
	va_end(list);
	return sum;
}

long sum_named(long count, ...)
{
	va_list list;
	long sum = 0;

	calls++;
	va_start(list, count);
	while (count-- > 0)
		sum = sum * 3 + va_arg(list, long);
	va_end(list);
	return sum;
}

union with_float float_of(long a, long b, long c, long d, long e, long f, long g)
{
	union with_float result = { .wide = a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 };

	calls++;
	return result;
}

union with_double double_of(long a, long b, long c, long d, long e, long f, long g)
{
	union with_double result = { .wide = a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 };

	calls++;
	return result;
}

union with_long long_of(long a, long b, long c, long d, long e, long f, long g)
{
	union with_long result = { .wide = a + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 };

	calls++;
	return result;
}

union with_longs longs_of(long a, long b, long c, long d, long e, union with_longs x, long g)
{
	union with_longs result = { .narrow = { a + b * 2 + c * 3 + d * 4 + e * 5 + x.narrow[0] * 6 + g * 7, x.narrow[1] } };

	calls++;
	return result;
}

_Complex long double complex_of(long a, long b, long c, long d, long e, long f, long g)
{
	_Complex long double result;

	calls++;
	__real__ result = a + b * 2 + c * 3 + d * 4 + e * 5;
	__imag__ result = f * 6 + g * 7;
	return result;
}

long packed_of(struct packed a, struct packed b, struct packed c, struct packed d, struct packed e, struct packed f,
	       long last)
{
	calls++;
	return a.second + b.second * 2 + c.second * 3 + d.second * 4 + e.second * 5 + f.second * 6 + last * 7;
}

long fields_of(struct fields a, struct fields b, struct fields c, struct fields d, struct fields e, struct fields f,
	       struct fields g, long last)
{
	calls++;
	return a.low + b.high * 2 + c.number * 3 + d.low * 4 + e.high * 5 + f.low * 6 + g.number * 7 + last * 8;
}

long complexes(long a, long b, long c, long d, long e, long f, double g, double h, double i, double j, double k,
	       double l, double m, long odd, _Complex double pair, long last)
{
	calls++;
	return a + b + c + d + e + f + (long)(g + h + i + j + k + l + m) + odd * 2 + (long)__real__ pair * 3 +
	       (long)__imag__ pair * 4 + last * 5;
}

long outer_of(union outer a, union outer b, union outer c, long last)
{
	calls++;
	return a.word[0] + a.word[1] * 2 + b.word[0] * 3 + b.word[1] * 4 + c.word[0] * 5 + c.word[1] * 6 + last * 7;
}

long quads(__float128 a, long b, long c, long d, long e, long f, long g, long h)
{
	long words[2];

	calls++;
	__builtin_memcpy(words, &a, sizeof a);
	return words[0] + b * 2 + c * 3 + d * 4 + e * 5 + f * 6 + g * 7 + h * 8;
}
