/* Functions with variables of their module, with and without words on the stack. */
#include "steplib.h"
#include <stdarg.h>

static long count;
static volatile long none;

long plain(long a) { return a + 1 + count; }
long seven(long a, long b, long c, long d, long e, long f, long g) { return plain(3) + a + b + c + d + e + f + g; }
long ten(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j)
{
	return plain(3) + a + b + c + d + e + f + g + h + i + j;
}
long many(int n, ...)
{
	long sum = none;
	va_list list;
	va_start(list, n);
	while (n-- > 0)
		sum += va_arg(list, long);
	va_end(list);
	return sum;
}
long base(long by) { return count -= by; }
long back(long (*call)(long), long argument) { return call(argument) + 1 + none; }
