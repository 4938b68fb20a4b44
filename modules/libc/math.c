/* Mathematics by the processor's own functions on 80-bit numbers, which round to the nearest double nearly always. */
#define F(name, code) double name(double x) { long double r = x; __asm__(code : "+t"(r)); return (double)r; }

F(sqrt, "fsqrt")
F(sin, "fsin")
F(cos, "fcos")
F(fabs, "fabs")

double floor(double x)
{
	double whole;
	if (!(x > -0x1p52 && x < 0x1p52) || x == 0)
		return x;
	whole = (double)(long)x;
	return whole > x ? whole - 1 : whole;
}

double ceil(double x) { return -floor(-x); }

double fmod(double x, double y)
{
	long double r = x;
	unsigned short status;
	do
		__asm__("fprem; fnstsw %%ax" : "+t"(r), "=a"(status) : "u"((long double)y));
	while (status & 0x400);
	return (double)r;
}

static long double log2_of(long double x)
{
	long double r;
	__asm__("fyl2x" : "=t"(r) : "0"(x), "u"(1.0L) : "st(1)");
	return r;
}

static long double exp2_of(long double x)
{
	long double whole, part;
	if (x > 16384)
		return __builtin_infl();
	if (x < -16500)
		return 0;
	__asm__("frndint" : "=t"(whole) : "0"(x));
	part = x - whole;
	__asm__("f2xm1" : "+t"(part));
	part += 1;
	__asm__("fscale" : "+t"(part) : "u"(whole));
	return part;
}

#define LN2 0.693147180559945309417232121458176568L
double log2(double x) { return (double)log2_of(x); }
double log(double x) { return (double)(log2_of(x) * LN2); }
double log10(double x) { return (double)(log2_of(x) * 0.301029995663981195213738894724493027L); }
double exp(double x) { return (double)exp2_of(x / LN2); }

double pow(double x, double y)
{
	int whole = y == floor(y);
	long double r = 1, by = x < 0 ? -x : x;

	if (y == 0 || x == 1)
		return 1;
	if (x != x || y != y || (x < 0 && !whole))
		return __builtin_nan("");
	if (x == 0)
		return y > 0 ? 0 : __builtin_inf();
	if (whole && y > -1024 && y < 1024) {
		for (int n = (int)(y < 0 ? -y : y); n > 0; n /= 2, by *= by)
			if (n & 1)
				r *= by;
		r = y < 0 ? 1 / r : r;
	} else {
		r = exp2_of(y * log2_of(by));
	}
	return (double)(x < 0 && fmod(y, 2) != 0 ? -r : r);
}

double atan2(double y, double x)
{
	long double r;
	__asm__("fpatan" : "=t"(r) : "0"((long double)x), "u"((long double)y) : "st(1)");
	return (double)r;
}

double tan(double x) { return sin(x) / cos(x); }
double atan(double x) { return atan2(x, 1); }
double asin(double x) { return atan2(x, sqrt((1 - x) * (1 + x))); }
double acos(double x) { return atan2(sqrt((1 - x) * (1 + x)), x); }
double sinh(double x) { return (exp(x) - exp(-x)) / 2; }
double cosh(double x) { return (exp(x) + exp(-x)) / 2; }
double tanh(double x) { return 1 - 2 / (exp(2 * x) + 1); }

double ldexp(double x, int n)
{
	long double r = x;
	__asm__("fscale" : "+t"(r) : "u"((long double)n));
	return (double)r;
}

double frexp(double x, int *exponent)
{
	long double part = x, power;
	*exponent = 0;
	if (x == 0 || x != x || x - x != 0)
		return x;
	__asm__("fxtract" : "=t"(part), "=u"(power) : "0"(part));
	*exponent = (int)power + 1;
	return (double)(part / 2);
}

double modf(double x, double *whole)
{
	*whole = x < 0 ? ceil(x) : floor(x);
	return x - *whole;
}
