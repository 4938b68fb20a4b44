/* Starts the client where it is linked by the system's linker. */
#include <stdlib.h>
int client_run(int rounds);
int main(int count, char **words)
{
	return client_run(count > 1 ? atoi(words[1]) : 10);
}
