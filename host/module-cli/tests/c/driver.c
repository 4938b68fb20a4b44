/* The same objects linked by the system's linker: what the modules are compared with. */
#include <stdio.h>
int start(void);
long step(long n);
int main(void)
{
	if (start() != 0)
		return 1;
	for (long n = 1; n <= 3; n++)
		printf("%ld\n", step(n));
	return 0;
}
