/* Doubles and decimal digits, exactly. */
#ifndef DECIMAL_H
#define DECIMAL_H

/* The most significant digits that a double has: those of the largest number below the smallest normal one. */
#define DECIMAL_DIGITS 767

/*
 * All digits of a finite value above zero, without zeros before the first one: their number is returned, and the power of ten
 * of the first. The text has room for DECIMAL_DIGITS digits and 9 more.
 */
int decimal_digits(double value, char *text, int *exponent);

/*
 * What lies half way between two doubles has one digit more than a double. Of a text with more digits than that, one further digit stands
 * for all the others: it is not zero if any of them is not.
 */
#define DECIMAL_DIGITS_READ (DECIMAL_DIGITS + 2)

/*
 * The double that is nearest to the digits, of which the first has so large a power of ten; halves go to the even one. Infinite if it is too
 * large. There are at most DECIMAL_DIGITS_READ digits, and the first is not zero.
 */
double decimal_nearest(const char *digits, int count, int exponent);

#endif
