/* What the module `inline` offers to `inlineclient`, which calls it inline. */
#include <stdint.h>
#include <stdbool.h>
struct two { long a, b; };
typedef uint64_t step(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

int in_count(void);
void in_set(int count);
long in_six(long a, int b, unsigned short c, signed char d, bool e, const char *f);
double in_mixed(double a, int b, float c, long d, double e);
float in_half(float a);
short in_short(int a);
bool in_odd(int a);
const char *in_name(int which);
int in_aligned(void);
void in_spoil(void);
uint64_t in_each(uint64_t from, uint64_t to, step *how);
uint64_t in_each_of(uint64_t from, uint64_t to, const void *procedure);
void in_jump(void *where);
long in_seven(long a, long b, long c, long d, long e, long f, long g);
struct two in_two(long a);
int in_sum(int count, ...);
extern int in_variable;
long in_pure(long a);
