/* What the module `lib` offers to the module `main`. */
#include <stdarg.h>
#include <stddef.h>
struct small { int a; float b; };
struct pair { long a, b; };
struct mixed { double d; long l; };
struct big { long w[5]; };
typedef int compare(const void *, const void *);

int counter_next(void);
long sum9(long a, long b, long c, long d, long e, long f, long g, long h, long i);
double mixed_sum(int a, double b, long double c, struct big d, float e, struct small f, int g, int h, int i, int j, int k);
struct big make_big(long start);
struct pair swap_pair(struct pair p);
struct mixed add_mixed(struct mixed a, struct mixed b);
__int128 wide(long a, long b, long c, long d, long e, __int128 f, long g);
int format(char *to, size_t room, const char *form, ...);
long total(int count, ...);
void sort_ints(int *values, size_t count, compare *how);
compare *descending(void);
long apply(long (*f)(long, void *), long x, void *context);
void each(int count, int (*f)(int, int, int, int, int, int, int, int), long *sum);
extern int exported_variable;
extern const char *const exported_names[];
int read_variable(void);
int constant_of(int index);
void jump_out(void *where);
