/* Where the static program begins: it relocates itself, as every static-PIE image of this system does, then calls main. */
#include "../../../abi/golden/gondwana.h"

int main(int, char **);
void flush_all(void);

__asm__(".globl _start\n_start: xor %ebp, %ebp\n lea _DYNAMIC(%rip), %rsi\n lea __ehdr_start(%rip), %rdx\n call begin\n ud2");

/* The header of an instance's data, which exit() asks what is to be ended: this program has no instances. */
__attribute__((visibility("hidden"))) void *__dso_handle[6];

struct rela { uint64_t at, kind, addend; };

__attribute__((visibility("hidden"))) void begin(uint64_t start, const uint64_t (*dynamic)[2], uint64_t image)
{
	const struct rela *table = 0;
	uint64_t bytes = 0;
	char *arguments[] = { "eight", 0 };

	for (; (*dynamic)[0]; dynamic++) {
		if ((*dynamic)[0] == 7)
			table = (const struct rela *)(image + (*dynamic)[1]);
		if ((*dynamic)[0] == 8)
			bytes = (*dynamic)[1];
	}
	for (; bytes > 0; bytes -= sizeof *table, table++)
		*(uint64_t *)(image + table->at) = image + table->addend;
	(void)start;
	for (;;)
		ThreadDelete(0, (uint64_t)main(1, arguments));
}
