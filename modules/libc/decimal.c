/*
 * Doubles and decimal digits, exactly. A double is m * 2^e with whole numbers m and e, and so m * 2^e, or m * 5^-e with the point moved,
 * is a whole number with all its digits (at most 767). To read one, the digits are compared with the number half way between two
 * neighbours. Both are whole numbers once both sides are multiplied by the same powers of two and five. So nothing is rounded but the
 * result. (Clinger 1990, "How to read floating point numbers accurately"; Steele and White 1990 for printing.)
 */
#include "decimal.h"
#include <string.h>

/* A large whole number in words of 9 digits, the lowest first. */
#define WORD 1000000000UL
#define WORD_DIGITS 9
/*
 * The largest has some 800 digits: where a number near the smallest double is read, and the number half way to it is multiplied by 5^1092.
 */
#define WORDS 128
struct large {
	int count;
	unsigned words[WORDS];
};

static void times(struct large *n, unsigned by, unsigned plus)
{
	unsigned long carry = plus;
	for (int i = 0; i < n->count; i++) {
		carry += (unsigned long)n->words[i] * by;
		n->words[i] = (unsigned)(carry % WORD);
		carry /= WORD;
	}
	/* A factor of 32 bits may carry two words. */
	for (; carry > 0; carry /= WORD)
		n->words[n->count++] = (unsigned)(carry % WORD);
}

static void times_power(struct large *n, unsigned base, int power)
{
	/* The largest power that a factor holds. */
	const unsigned step = base == 2 ? 31 : 13, factor = base == 2 ? 1U << 31 : 1220703125U;
	unsigned rest = 1;
	for (; power >= (int)step; power -= (int)step)
		times(n, factor, 0);
	for (; power > 0; power--)
		rest *= base;
	times(n, rest, 0);
}

static struct large large_of(unsigned long value)
{
	struct large n = { 0 };
	for (; value > 0; value /= WORD)
		n.words[n.count++] = (unsigned)(value % WORD);
	return n;
}

static int compare(const struct large *a, const struct large *b)
{
	if (a->count != b->count)
		return a->count < b->count ? -1 : 1;
	for (int i = a->count; i-- > 0;)
		if (a->words[i] != b->words[i])
			return a->words[i] < b->words[i] ? -1 : 1;
	return 0;
}

union bits {
	double value;
	unsigned long bits;
};
#define FRACTION_BITS 52
#define INFINITE (2047UL << FRACTION_BITS)

/* The whole numbers m and e of m * 2^e. */
static unsigned long parts(unsigned long bits, int *e)
{
	unsigned long fraction = bits & ((1UL << FRACTION_BITS) - 1);
	int power = (int)(bits >> FRACTION_BITS);
	*e = (power ? power : 1) - 1023 - FRACTION_BITS;
	return power ? fraction | 1UL << FRACTION_BITS : fraction;
}

int decimal_digits(double value, char *text, int *exponent)
{
	union bits u = { value };
	char *to = text;
	int e, zeros;
	unsigned long m = parts(u.bits, &e);
	/* Fewer steps where the value is a whole number or nearly one. */
	zeros = __builtin_ctzl(m);
	m >>= zeros;
	e += zeros;
	struct large n = large_of(m);
	times_power(&n, e < 0 ? 5 : 2, e < 0 ? -e : e);
	for (int i = n.count; i-- > 0; to += WORD_DIGITS) {
		unsigned rest = n.words[i];
		for (int at = WORD_DIGITS; at-- > 0; rest /= 10)
			to[at] = (char)('0' + rest % 10);
	}
	/* Of the highest word only zeros come before the first digit. */
	zeros = 0;
	while (text[zeros] == '0')
		zeros++;
	memmove(text, text + zeros, (size_t)(to - text - zeros));
	*exponent = (int)(to - text) - zeros - 1 - (e < 0 ? -e : 0);
	return (int)(to - text) - zeros;
}

/* Compares digits * 10^power with (2 m + 1) * 2^(e - 1), half way between a double and the next larger one. */
static int against_half(const struct large *digits, int power, unsigned long bits)
{
	int e, twos;
	struct large left = *digits, right = large_of(2 * parts(bits, &e) + 1);
	times_power(power < 0 ? &right : &left, 5, power < 0 ? -power : power);
	twos = power - (e - 1);
	times_power(twos < 0 ? &right : &left, 2, twos < 0 ? -twos : twos);
	return compare(&left, &right);
}

static long double raised(int times)
{
	long double value = 1;
	for (long double by = 10; times > 0; times /= 2, by *= by)
		if (times & 1)
			value *= by;
	return value;
}

double decimal_nearest(const char *digits, int count, int exponent)
{
	static const double exact[] = { 1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
					1e19, 1e20, 1e21, 1e22 };
	unsigned long head = 0;
	int taken, power;
	union bits u;
	struct large n = { 0 };

	if (exponent > 308)
		return __builtin_inf();
	if (exponent < -324)
		return 0;
	while (count > 1 && digits[count - 1] == '0')
		count--;
	for (taken = 0; taken < count && taken < 19; taken++)
		head = head * 10 + (unsigned)(digits[taken] - '0');
	power = exponent - taken + 1;
	/* Both numbers are exact, so one operation rounds once. */
	if (taken == count && head < 1UL << 53 && power >= -22 && power <= 22)
		return power < 0 ? (double)head / exact[-power] : (double)head * exact[power];
	/* Near it, and then to the right one, which is at most a few away. */
	u.value = (double)(power < 0 ? (long double)head / raised(-power) : (long double)head * raised(power));
	if (u.bits >= INFINITE)
		u.bits = INFINITE - 1;
	for (int i = 0; i < count;) {
		unsigned word = 0, by = 1;
		for (; i < count && by < WORD; i++, by *= 10)
			word = word * 10 + (unsigned)(digits[i] - '0');
		times(&n, by, word);
	}
	power = exponent - count + 1;
	for (int order; u.bits < INFINITE; u.bits++) {
		order = against_half(&n, power, u.bits);
		if (order < 0 || (order == 0 && u.bits % 2 == 0))
			break;
	}
	for (int order; u.bits > 0; u.bits--) {
		order = against_half(&n, power, u.bits - 1);
		if (order > 0 || (order == 0 && u.bits % 2 == 0))
			break;
	}
	return u.value;
}
