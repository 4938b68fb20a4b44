/* Does what its arguments say in a database in memory, and prints the rows. */
#include "sqlite3.h"
#include <stdio.h>

static int rows;
static int show(void *context, int columns, char **values, char **names)
{
	(void)context, (void)names;
	rows++;
	for (int i = 0; i < columns; i++)
		printf(i > 0 ? "|%s" : "%s", values[i] ? values[i] : "");
	printf("\n");
	return 0;
}

int main(int count, char **arguments)
{
	sqlite3 *database;
	char *why = NULL;

	if (sqlite3_open(":memory:", &database) != SQLITE_OK) {
		printf("sqlrows: %s\n", sqlite3_errmsg(database));
		return 1;
	}
	for (int i = 1; i < count; i++)
		if (sqlite3_exec(database, arguments[i], show, NULL, &why) != SQLITE_OK) {
			printf("sqlrows: %s\n", why);
			return 1;
		}
	printf("%d rows\n", rows);
	return sqlite3_close(database) != SQLITE_OK;
}
