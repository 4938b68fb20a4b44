/* A program with eight libraries: a call of each, and the end. The same source is linked with modules and statically. */
#include "lua.h"
#include "sqlite3.h"
#include <stdio.h>

long counter_next(void), ping_calls(void), pong_calls(void), steps_next(void), digest_add(long);
static long sum;

int main(int count, char **arguments)
{
	char text[8];

	(void)arguments;
	if (count > 1)
		return 0;
	sum += counter_next() + ping_calls() + pong_calls() + steps_next() + digest_add(3);
	sum += sqlite3_libversion_number() > 0;
	sum += lua_version(NULL) > 0;
	sum += snprintf(text, sizeof text, "%d", 7);
	return sum != 8;
}
