/* Every kind of reference that C makes: for the corpus of the fuzzer. See README.md. */
#include <stddef.h>
extern int other(int);
extern int other_variable;
extern void sort(void *, size_t, size_t, int (*)(const void *, const void *));
__attribute__((weak)) extern int perhaps(void);
static int count;
int variable = 5;
int array[100];
static int *middle = &array[50];
static const char *const names[] = { "a", "b", "c" };
int (*pointer)(int) = other;
static int compare(const void *a, const void *b) { count++; return *(const int *)a - *(const int *)b; }
static int plain(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int entry(int *a, int n)
{
	sort(a, (size_t)n, 4, n > 9 ? compare : plain);
	pointer = other;
	return other(variable += 3) + other_variable + names[n & 1][0] + *middle + (perhaps ? perhaps() : 0);
}
int choose(int x)
{
	switch (x) {
	case 0: return other(1);
	case 1: return other(3);
	case 2: return 7 + variable;
	case 3: return other(9) * 2;
	case 4: return 77;
	case 5: return count;
	}
	return entry(&x, 1);
}
int labels(int x)
{
	static const void *const table[] = { &&a, &&b, &&c };
	goto *table[x];
a:	return 1;
b:	return variable;
c:	return count;
}
struct three { long w[3]; };
long many(int a, int b, int c, int d, int e, int f, int g, double h, struct three i) { count++; return a + b + c + d + e + f + g + (long)h + i.w[1]; }
__attribute__((constructor)) static void begin(void) { count = 1; }
