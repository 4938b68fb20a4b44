/* A program with sqlite3 as a library module: callbacks, functions and collations of the program's own. */
#include "sqlite3.h"
#include <stdlib.h>
#include <string.h>

static sqlite3 *database;
static int rows, doubled;
static long sum;

static int on_row(void *context, int columns, char **values, char **names)
{
	rows++;
	sum += atoi(values[0]) + columns + (strcmp(names[0], "v") == 0) + *(int *)context;
	return 0;
}

static void twice(sqlite3_context *context, int count, sqlite3_value **values)
{
	doubled += count;
	sqlite3_result_int64(context, 2 * sqlite3_value_int64(values[0]));
}

static int backwards(void *context, int a, const void *x, int b, const void *y)
{
	int n = memcmp(y, x, (size_t)(a < b ? a : b));

	(*(int *)context)++;
	return n != 0 ? n : b - a;
}

static int comparisons;

int start(void)
{
	if (sqlite3_open(":memory:", &database) != SQLITE_OK)
		return 1;
	if (sqlite3_create_function(database, "twice", 1, SQLITE_UTF8, NULL, twice, NULL, NULL) != SQLITE_OK)
		return 2;
	if (sqlite3_create_collation(database, "backwards", SQLITE_UTF8, &comparisons, backwards) != SQLITE_OK)
		return 3;
	return sqlite3_exec(database, "create table t(id integer primary key, v int, s text); create index i on t(s);",
			NULL, NULL, NULL);
}

/* Inserts 200 rows and asks three questions; the sum over the answers, or a negative number. */
long step(long seed)
{
	sqlite3_stmt *insert, *first;
	int one = 1;
	char *text;

	sum = 0;
	if (sqlite3_exec(database, "begin", NULL, NULL, NULL) != SQLITE_OK)
		return -1;
	if (sqlite3_prepare_v2(database, "insert into t(v, s) values (?, ?)", -1, &insert, NULL) != SQLITE_OK)
		return -2;
	for (int i = 0; i < 200; i++) {
		text = sqlite3_mprintf("%s-%d-%ld-%q-%d-%d-%d", "row", i, seed, "it's", 1, 2, 3);
		sqlite3_bind_int64(insert, 1, (i * 37 + seed) % 101);
		sqlite3_bind_text(insert, 2, text, -1, sqlite3_free);
		if (sqlite3_step(insert) != SQLITE_DONE)
			return -3;
		sqlite3_reset(insert);
	}
	sqlite3_finalize(insert);
	if (sqlite3_exec(database, "commit", NULL, NULL, NULL) != SQLITE_OK)
		return -4;
	if (sqlite3_exec(database, "select twice(v) as v from t where v > 50 group by v order by v", on_row, &one, NULL) != 0)
		return -5;
	if (sqlite3_exec(database, "select count(*), round(avg(v), 3), max(s) from t where s like 'row-1%''s%'", on_row, &one, NULL) != 0)
		return -6;
	if (sqlite3_prepare_v2(database, "select s from t order by s collate backwards limit 1", -1, &first, NULL) != SQLITE_OK)
		return -7;
	if (sqlite3_step(first) != SQLITE_ROW)
		return -8;
	sum = sum * 1000 + sqlite3_column_bytes(first, 0);
	sqlite3_finalize(first);
	return comparisons > 0 && doubled > 0 ? sum : -9;
}

long used(void) { return sqlite3_memory_used(); }
