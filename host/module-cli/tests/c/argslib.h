/* Functions whose arguments are hard to find: tests/arguments.rs. */
#include <stdarg.h>

struct large { long word[60]; };
union with_float { long double wide; float narrow; };
union with_double { long double wide; double narrow; };
union with_long { long double wide; long narrow; };
union with_longs { long double wide; long narrow[2]; };
union outer { union with_long inner; long word[2]; };
struct __attribute__((packed)) packed { char first; int second; };
struct fields { long low : 60; int high : 4; double number; };

long sum_behind(struct large named, ...);
long sum_named(long count, ...);
union with_float float_of(long a, long b, long c, long d, long e, long f, long g);
union with_double double_of(long a, long b, long c, long d, long e, long f, long g);
union with_long long_of(long a, long b, long c, long d, long e, long f, long g);
union with_longs longs_of(long a, long b, long c, long d, long e, union with_longs x, long g);
_Complex long double complex_of(long a, long b, long c, long d, long e, long f, long g);
long packed_of(struct packed a, struct packed b, struct packed c, struct packed d, struct packed e, struct packed f,
	       long last);
long fields_of(struct fields a, struct fields b, struct fields c, struct fields d, struct fields e, struct fields f,
	       struct fields g, long last);
long complexes(long a, long b, long c, long d, long e, long f, double g, double h, double i, double j, double k,
	       double l, double m, long odd, _Complex double pair, long last);
long outer_of(union outer a, union outer b, union outer c, long last);
long quads(__float128 a, long b, long c, long d, long e, long f, long g, long h);
