/* Works with sqlite3 as a shared library, then prints the bytes of the library's mappings that are this process's alone (anonymous
 * pages: what was copied or began as zero). */
#include <stdio.h>
#include <string.h>

int start(void);
long step(long n);

int main(void)
{
	char line[1024];
	int counted = 0, last = 0;
	long sum = 0, kilobytes;
	FILE *maps;

	if (start() != 0 || step(1) <= 0)
		return 1;
	maps = fopen("/proc/self/smaps", "r");
	if (maps == NULL)
		return 2;
	while (fgets(line, sizeof line, maps) != NULL) {
		unsigned long from, to;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
			/* The library's zero-filled data has no name and follows it. */
			counted = strstr(line, "libsqlmem.so") != NULL || (last && strchr(line, '/') == NULL);
			last = strstr(line, "libsqlmem.so") != NULL;
		} else if (counted && sscanf(line, "Anonymous: %ld", &kilobytes) == 1) {
			sum += kilobytes * 1024;
		}
	}
	fclose(maps);
	printf("%ld\n", sum);
	return 0;
}
