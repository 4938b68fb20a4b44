/* Time, classes of characters, and the one locale. */
#include "libc.h"
#include <locale.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

int snprintf(char *, size_t, const char *, ...);

time_t time(time_t *to)
{
	unsigned long now;
	sys_clock(&now);
	if (to)
		*to = (time_t)(now / 1000000000);
	return (time_t)(now / 1000000000);
}

clock_t clock(void)
{
	unsigned long unused;
	return (clock_t)(sys_clock(&unused) / 1000);
}

double difftime(time_t a, time_t b) { return (double)(a - b); }

/* Days since 1970 of a date (months from March, so that February comes last). */
static long days_of(long year, int month, int day)
{
	long y = year - (month <= 2), era = (y >= 0 ? y : y - 399) / 400, of_era = y - era * 400;
	long of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static struct tm shown;
struct tm *gmtime(const time_t *at)
{
	long days = *at / 86400, rest = *at % 86400, z, era, of_era, year, of_year, month;
	if (rest < 0) {
		rest += 86400;
		days--;
	}
	z = days + 719468;
	era = (z >= 0 ? z : z - 146096) / 146097;
	of_era = z - era * 146097;
	year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	of_year = of_era - (365 * year + year / 4 - year / 100);
	month = (5 * of_year + 2) / 153;
	shown.tm_mday = (int)(of_year - (153 * month + 2) / 5 + 1);
	shown.tm_mon = (int)(month < 10 ? month + 2 : month - 10);
	shown.tm_year = (int)(year + era * 400 + (shown.tm_mon < 2) - 1900);
	shown.tm_hour = (int)(rest / 3600);
	shown.tm_min = (int)(rest / 60 % 60);
	shown.tm_sec = (int)(rest % 60);
	shown.tm_wday = (int)(((days + 4) % 7 + 7) % 7);
	shown.tm_yday = (int)(days - days_of(shown.tm_year + 1900L, 1, 1));
	return &shown;
}

struct tm *localtime(const time_t *at) { return gmtime(at); }

time_t mktime(struct tm *t)
{
	long year = t->tm_year + 1900L + t->tm_mon / 12;
	int month = t->tm_mon % 12;
	time_t at;
	if (month < 0) {
		month += 12;
		year--;
	}
	at = (days_of(year, month + 1, 1) + t->tm_mday - 1) * 86400 + t->tm_hour * 3600L + t->tm_min * 60L + t->tm_sec;
	*t = *gmtime(&at);
	return at;
}

static const char *const DAYS[] = { "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday" };
static const char *const MONTHS[] = { "January", "February", "March", "April", "May", "June", "July", "August",
	"September", "October", "November", "December" };

size_t strftime(char *to, size_t room, const char *f, const struct tm *t)
{
	size_t n = 0;
	for (; *f; f++) {
		char part[64];
		int length;
		if (*f != '%' || !f[1]) {
			part[0] = *f;
			length = 1;
		} else {
			switch (*++f) {
			case 'a': length = snprintf(part, sizeof part, "%.3s", DAYS[t->tm_wday % 7]); break;
			case 'A': length = snprintf(part, sizeof part, "%s", DAYS[t->tm_wday % 7]); break;
			case 'b': length = snprintf(part, sizeof part, "%.3s", MONTHS[t->tm_mon % 12]); break;
			case 'B': length = snprintf(part, sizeof part, "%s", MONTHS[t->tm_mon % 12]); break;
			case 'c':
				length = snprintf(part, sizeof part, "%.3s %.3s %2d %02d:%02d:%02d %d", DAYS[t->tm_wday % 7],
						  MONTHS[t->tm_mon % 12], t->tm_mday, t->tm_hour, t->tm_min, t->tm_sec, t->tm_year + 1900);
				break;
			case 'd': length = snprintf(part, sizeof part, "%02d", t->tm_mday); break;
			case 'D':
			case 'x': length = snprintf(part, sizeof part, "%02d/%02d/%02d", t->tm_mon + 1, t->tm_mday, t->tm_year % 100); break;
			case 'F': length = snprintf(part, sizeof part, "%d-%02d-%02d", t->tm_year + 1900, t->tm_mon + 1, t->tm_mday); break;
			case 'H': length = snprintf(part, sizeof part, "%02d", t->tm_hour); break;
			case 'I': length = snprintf(part, sizeof part, "%02d", (t->tm_hour + 11) % 12 + 1); break;
			case 'j': length = snprintf(part, sizeof part, "%03d", t->tm_yday + 1); break;
			case 'm': length = snprintf(part, sizeof part, "%02d", t->tm_mon + 1); break;
			case 'M': length = snprintf(part, sizeof part, "%02d", t->tm_min); break;
			case 'p': length = snprintf(part, sizeof part, "%s", t->tm_hour < 12 ? "AM" : "PM"); break;
			case 'S': length = snprintf(part, sizeof part, "%02d", t->tm_sec); break;
			case 'T':
			case 'X': length = snprintf(part, sizeof part, "%02d:%02d:%02d", t->tm_hour, t->tm_min, t->tm_sec); break;
			case 'y': length = snprintf(part, sizeof part, "%02d", t->tm_year % 100); break;
			case 'Y': length = snprintf(part, sizeof part, "%d", t->tm_year + 1900); break;
			case 'Z': length = snprintf(part, sizeof part, "UTC"); break;
			case '%': length = snprintf(part, sizeof part, "%%"); break;
			default: length = snprintf(part, sizeof part, "%%%c", *f);
			}
		}
		if (n + (size_t)length >= room)
			return 0;
		memcpy(to + n, part, (size_t)length);
		n += (size_t)length;
	}
	if (n < room)
		to[n] = 0;
	return n;
}

/* What the headers' macros look up, for each character from -128 to 255: made when this is compiled, so that it is shared and no
   instance has to fill it. */
#define IS_UPPER(c) ((c) >= 'A' && (c) <= 'Z')
#define IS_LOWER(c) ((c) >= 'a' && (c) <= 'z')
#define IS_DIGIT(c) ((c) >= '0' && (c) <= '9')
#define IS_ALPHA(c) (IS_UPPER(c) || IS_LOWER(c))
#define IS_HEX(c) (IS_DIGIT(c) || ((c) >= 'A' && (c) <= 'F') || ((c) >= 'a' && (c) <= 'f'))
#define IS_SPACE(c) ((c) == ' ' || ((c) >= '\t' && (c) <= '\r'))
#define IS_PRINTED(c) ((c) >= ' ' && (c) < 127)
#define CLASS(c) (IS_UPPER(c) << 8 | IS_LOWER(c) << 9 | IS_ALPHA(c) << 10 | IS_DIGIT(c) << 11 | IS_HEX(c) << 12 | \
	IS_SPACE(c) << 13 | IS_PRINTED(c) << 14 | (IS_PRINTED(c) && (c) != ' ') << 15 | ((c) == ' ' || (c) == '\t') | \
	(((c) >= 0 && (c) < ' ') || (c) == 127) << 1 | \
	(IS_PRINTED(c) && (c) != ' ' && !IS_ALPHA(c) && !IS_DIGIT(c)) << 2 | (IS_ALPHA(c) || IS_DIGIT(c)) << 3)
#define LOWER(c) (IS_UPPER(c) ? (c) + 32 : (c))
#define UPPER(c) (IS_LOWER(c) ? (c) - 32 : (c))
#define FOUR(of, c) of((c)), of((c) + 1), of((c) + 2), of((c) + 3)
#define SIXTEEN(of, c) FOUR(of, (c)), FOUR(of, (c) + 4), FOUR(of, (c) + 8), FOUR(of, (c) + 12)
#define SIXTY_FOUR(of, c) SIXTEEN(of, (c)), SIXTEEN(of, (c) + 16), SIXTEEN(of, (c) + 32), SIXTEEN(of, (c) + 48)
#define ALL(of) SIXTY_FOUR(of, -128), SIXTY_FOUR(of, -64), SIXTY_FOUR(of, 0), SIXTY_FOUR(of, 64), \
	SIXTY_FOUR(of, 128), SIXTY_FOUR(of, 192)

static const unsigned short classes[384] = { ALL(CLASS) };
static const int lower[384] = { ALL(LOWER) }, upper[384] = { ALL(UPPER) };
static const unsigned short *const classes_at = classes + 128;
static const int *const lower_at = lower + 128, *const upper_at = upper + 128;

const unsigned short **__ctype_b_loc(void) { return (const unsigned short **)&classes_at; }
const int **__ctype_tolower_loc(void) { return (const int **)&lower_at; }
const int **__ctype_toupper_loc(void) { return (const int **)&upper_at; }
int tolower(int c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }
int toupper(int c) { return c >= 'a' && c <= 'z' ? c - 32 : c; }

char *setlocale(int category, const char *name)
{
	(void)category;
	return !name || !*name || strcmp(name, "C") == 0 ? "C" : NULL;
}

static struct lconv c_locale = { .decimal_point = ".", .thousands_sep = "", .grouping = "" };
struct lconv *localeconv(void) { return &c_locale; }

char *strerror(int number)
{
	static char text[24];
	if (number == 2)
		return "there is no such file";
	snprintf(text, sizeof text, "error %d", number);
	return text;
}
