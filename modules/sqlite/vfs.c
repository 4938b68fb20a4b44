/* What sqlite3 asks of an operating system, here: time and chance. There are no files, so databases are in memory. */
#include "sqlite3.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int open_file(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *given)
{
	(void)v, (void)name, (void)flags, (void)given;
	f->pMethods = NULL;
	return SQLITE_CANTOPEN;
}
static int delete_file(sqlite3_vfs *v, const char *name, int sync) { (void)v, (void)name, (void)sync; return SQLITE_IOERR_DELETE; }
static int access_file(sqlite3_vfs *v, const char *name, int flags, int *result)
{
	(void)v, (void)name, (void)flags;
	*result = 0;
	return SQLITE_OK;
}
static int full_name(sqlite3_vfs *v, const char *name, int room, char *to)
{
	(void)v;
	strncpy(to, name, (size_t)room - 1);
	to[room - 1] = 0;
	return SQLITE_OK;
}
static int chance(sqlite3_vfs *v, int bytes, char *to)
{
	(void)v;
	srand((unsigned)clock());
	for (int i = 0; i < bytes; i++)
		to[i] = (char)rand();
	return bytes;
}
static int rest(sqlite3_vfs *v, int us) { (void)v; return us; }
static int now_ms(sqlite3_vfs *v, sqlite3_int64 *to)
{
	(void)v;
	*to = time(NULL) * 1000 + 210866760000000;
	return SQLITE_OK;
}
static int now(sqlite3_vfs *v, double *to)
{
	sqlite3_int64 ms;
	now_ms(v, &ms);
	*to = (double)ms / 86400000.0;
	return SQLITE_OK;
}
static int last_error(sqlite3_vfs *v, int room, char *to) { (void)v, (void)room, (void)to; return 0; }

static sqlite3_vfs memory_only = {
	.iVersion = 2, .szOsFile = sizeof(sqlite3_file), .mxPathname = 256, .zName = "gondwana",
	.xOpen = open_file, .xDelete = delete_file, .xAccess = access_file, .xFullPathname = full_name,
	.xRandomness = chance, .xSleep = rest, .xCurrentTime = now, .xGetLastError = last_error, .xCurrentTimeInt64 = now_ms,
};

int sqlite3_os_init(void) { return sqlite3_vfs_register(&memory_only, 1); }
int sqlite3_os_end(void) { return SQLITE_OK; }
