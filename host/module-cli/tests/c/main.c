/* The client: every way of calling there is. Returns the line of the first check that failed, or 0. */
#include "lib.h"
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) return __LINE__; } while (0)

static int mine;
static int comparisons;
int common_array[100];
static int *inside = &common_array[3];
static int (*pointer)(void) = counter_next;
static const struct { const char *name; int (*f)(void); } table[] = { { "next", counter_next }, { "read", read_variable } };

static int up(const void *a, const void *b)
{
	comparisons++;
	return *(const int *)a - *(const int *)b;
}
static int up_pure(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static long add_context(long x, void *context) { mine++; return x + *(long *)context; }
static int eight(int a, int b, int c, int d, int e, int f, int g, int h) { mine++; return a + b + c + d + e + f + 10 * g + 100 * h; }

static int bytecode(const unsigned char *code)
{
	static const void *const labels[] = { &&add, &&twice, &&count, &&stop };
	int value = 1;
next:
	goto *labels[*code++];
add: value += 5; goto next;
twice: value *= 2; goto next;
count: value += mine * 0 + 1; goto next;
stop: return value;
}

static int ascending(const int *v, int n) { for (int i = 1; i < n; i++) if (v[i - 1] > v[i]) return 0; return 1; }

__attribute__((constructor)) static void at_start(void) { mine = 1000; }
__attribute__((weak)) extern int nobody_has_this(void);

int started(void) { return mine; }
int next(void) { return pointer(); }
int bump(void) { return ++mine + inside[0]++ * 0; }

int check(void)
{
	int values[] = { 5, 3, 9, -1, 7, 0, 2, 8, 8, 1 };
	char text[200];
	jmp_buf out;
	long context = 30, sum = 0;
	volatile int before = mine;

	CHECK(sum9(1, 2, 3, 4, 5, 6, 7, 8, 9) == 1 + 4 + 9 + 16 + 25 + 36 + 49 + 64 + 81);
	struct big b = make_big(7);
	CHECK(b.w[0] == 7 && b.w[4] == 11);
	CHECK(mixed_sum(1, 2.5, 3.0L, b, 4.0f, (struct small){ 5, 6.0f }, 1, 2, 3, 4, 5) == 1 + 2.5 + 3 + 18 + 4 + 11 + 1 + 20 + 300 + 4000 + 50000);
	struct pair p = swap_pair((struct pair){ 3, 4 });
	CHECK(p.a == 4 && p.b == 3);
	struct mixed m = add_mixed((struct mixed){ 1.5, 2 }, (struct mixed){ 2.25, 3 });
	CHECK(m.d == 3.75 && m.l == 5);
	CHECK(wide(1, 2, 3, 4, 5, ((__int128)1 << 80) + 6, 7) == ((__int128)1 << 81) + 34);
	CHECK(format(text, sizeof text, "%d %s %.2f %c %ld %ld %ld %ld %.1f", 1, "two", 3.0, 'x', 5L, 6L, 7L, 8L, 9.5) == 24);
	CHECK(strcmp(text, "1 two 3.00 x 5 6 7 8 9.5") == 0);
	CHECK(total(3, 1L, 2L, 3L) == 18);
	CHECK(total(9, 1L, 0L, 0L, 0L, 0L, 0L, 0L, 0L, 1L) == 6562);
	sort_ints(values, 10, up);
	CHECK(ascending(values, 10) && comparisons > 9);
	sort_ints(values, 10, descending());
	CHECK(values[0] == 9 && values[9] == -1);
	sort_ints(values, 10, up_pure);
	CHECK(ascending(values, 10));
	CHECK(apply(add_context, 12, &context) == 42);
	CHECK(apply(NULL, 12, NULL) == 12);
	each(3, eight, &sum);
	CHECK(sum == (0 + 15 + 60 + 700) + (1 + 15 + 70 + 800) + (2 + 15 + 80 + 900));
	CHECK(mine == before + 4);
	CHECK(exported_variable == 11 && read_variable() == 11);
	exported_variable = 12;
	CHECK(read_variable() == 12);
	exported_variable = 11;
	CHECK(strcmp(exported_names[2], "two") == 0);
	CHECK(constant_of(0) == 17 && constant_of(3) == -3 && constant_of(9) == 99 && constant_of(77) == -1);
	CHECK(bytecode((const unsigned char[]){ 0, 1, 2, 1, 3 }) == 26);
	CHECK(table[1].f() == 11 && table[0].name[0] == 'n');
	CHECK(inside == common_array + 3);
	CHECK(nobody_has_this == NULL);
	if (setjmp(out) == 0) {
		jump_out(out);
		CHECK(0);
	}
	CHECK(mine == before + 4);
	return 0;
}
