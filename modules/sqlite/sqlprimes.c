/* A sieve in SQL with a function of the program's own: counts the primes below its argument. */
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>

static long asked;
static void is_prime(sqlite3_context *context, int count, sqlite3_value **values)
{
	sqlite3_int64 n = sqlite3_value_int64(values[0]);
	int prime = n > 1;

	(void)count;
	asked++;
	for (sqlite3_int64 d = 2; prime && d * d <= n; d++)
		prime = n % d != 0;
	sqlite3_result_int(context, prime);
}

int main(int count, char **arguments)
{
	sqlite3 *database;
	sqlite3_stmt *statement;

	if (sqlite3_open(":memory:", &database) != SQLITE_OK ||
	    sqlite3_create_function(database, "prime", 1, SQLITE_UTF8, NULL, is_prime, NULL, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(database,
		    "with recursive n(x) as (select 1 union all select x + 1 from n where x < ?1 - 1) "
		    "select count(*), max(x) from n where prime(x)", -1, &statement, NULL) != SQLITE_OK) {
		printf("sqlprimes: %s\n", sqlite3_errmsg(database));
		return 1;
	}
	sqlite3_bind_int(statement, 1, count > 1 ? atoi(arguments[1]) : 1000);
	if (sqlite3_step(statement) != SQLITE_ROW)
		return 1;
	printf("%d primes, the last is %d, asked %ld times\n", sqlite3_column_int(statement, 0),
	       sqlite3_column_int(statement, 1), asked);
	sqlite3_finalize(statement);
	return sqlite3_close(database) != SQLITE_OK;
}
