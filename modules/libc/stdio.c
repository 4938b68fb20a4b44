/* Streams over the console, and text from values. There are no files here: opening one fails with ENOENT. */
#include "decimal.h"
#include "libc.h"
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

void *malloc(size_t);
void free(void *);

#define EOF (-1)
typedef struct stream {
	int output, back, ended;
	size_t count, at;
	char bytes[512];
} FILE;

static FILE streams[3] = { { .back = EOF }, { .output = 1, .back = EOF }, { .output = 1, .back = EOF } };
FILE *stdin = &streams[0], *stdout = &streams[1], *stderr = &streams[2];

int fflush(FILE *f)
{
	size_t at = 0;
	if (!f) {
		flush_all();
		return 0;
	}
	while (f->output && at < f->count) {
		long written = sys_write(f->bytes + at, f->count - at);
		if (written <= 0)
			break;
		at += (size_t)written;
	}
	if (f->output)
		f->count = 0;
	return 0;
}

void flush_all(void)
{
	fflush(stdout);
	fflush(stderr);
}

static void put(FILE *f, const char *from, size_t bytes)
{
	int line = f == stderr;
	for (; bytes > 0; bytes--, from++) {
		if (f->count == sizeof f->bytes)
			fflush(f);
		f->bytes[f->count++] = *from;
		line |= *from == '\n';
	}
	if (line)
		fflush(f);
}

size_t fwrite(const void *from, size_t each, size_t count, FILE *f)
{
	if (!f->output) {
		errno = EBADF;
		return 0;
	}
	put(f, from, each * count);
	return count;
}

int fputs(const char *s, FILE *f) { return fwrite(s, strlen(s), 1, f) == 1 || !*s ? 0 : EOF; }
int fputc(int c, FILE *f)
{
	char byte = (char)c;
	return fwrite(&byte, 1, 1, f) == 1 ? c & 255 : EOF;
}
int putc(int c, FILE *f) { return fputc(c, f); }
int putchar(int c) { return fputc(c, stdout); }
int puts(const char *s)
{
	fputs(s, stdout);
	return putchar('\n');
}

int getc(FILE *f)
{
	int c = f->back;
	if (c != EOF) {
		f->back = EOF;
		return c;
	}
	if (f->output || f->ended)
		return EOF;
	if (f->at == f->count) {
		long read;
		fflush(stdout);
		read = sys_read(f->bytes, sizeof f->bytes);
		f->at = f->count = 0;
		if (read <= 0) {
			f->ended = 1;
			return EOF;
		}
		f->count = (size_t)read;
	}
	return (unsigned char)f->bytes[f->at++];
}
int fgetc(FILE *f) { return getc(f); }
int ungetc(int c, FILE *f) { return f->back = c; }

char *fgets(char *to, int room, FILE *f)
{
	int n = 0, c;
	while (n + 1 < room && (c = getc(f)) != EOF) {
		to[n++] = (char)c;
		if (c == '\n')
			break;
	}
	if (n == 0)
		return NULL;
	to[n] = 0;
	return to;
}

size_t fread(void *to, size_t each, size_t count, FILE *f)
{
	size_t bytes = each * count, n = 0;
	int c;
	while (n < bytes && (c = getc(f)) != EOF)
		((char *)to)[n++] = (char)c;
	return each ? n / each : 0;
}

int feof(FILE *f) { return f->ended; }
int ferror(FILE *f) { (void)f; return 0; }
void clearerr(FILE *f) { f->ended = 0; }
int setvbuf(FILE *f, char *buffer, int mode, size_t bytes) { (void)f, (void)buffer, (void)mode, (void)bytes; return 0; }
int fclose(FILE *f) { return fflush(f); }

static void *no_file(void) { errno = ENOENT; return NULL; }
FILE *fopen(const char *name, const char *mode) { (void)name, (void)mode; return no_file(); }
FILE *fopen64(const char *name, const char *mode) { (void)name, (void)mode; return no_file(); }
FILE *freopen64(const char *name, const char *mode, FILE *f) { (void)name, (void)mode, (void)f; return no_file(); }
FILE *freopen(const char *name, const char *mode, FILE *f) { (void)name, (void)mode, (void)f; return no_file(); }
FILE *tmpfile(void) { return no_file(); }
FILE *tmpfile64(void) { return no_file(); }
char *tmpnam(char *to) { (void)to; return no_file(); }
int remove(const char *name) { (void)name; return no_file() ? 0 : -1; }
int rename(const char *from, const char *to) { (void)from, (void)to; return no_file() ? 0 : -1; }
int fseek(FILE *f, long at, int from) { (void)f, (void)at, (void)from; errno = ESPIPE; return -1; }
long ftell(FILE *f) { (void)f; errno = ESPIPE; return -1; }

/* Where formatted text goes: a stream, or memory of so much room. */
struct sink {
	FILE *f;
	char *to;
	size_t room, count;
};

static void emit(struct sink *s, const char *from, size_t bytes)
{
	if (s->f)
		put(s->f, from, bytes);
	else
		for (size_t i = 0; i < bytes; i++)
			if (s->count + i < s->room)
				s->to[s->count + i] = from[i];
	s->count += bytes;
}

static void fill(struct sink *s, char c, int count)
{
	for (; count > 0; count--)
		emit(s, &c, 1);
}

struct form {
	int left, plus, space, hash, zero, width, precision;
};

/* What stands before a text of so many characters: its sign or prefix, and what pads it to the width. The blanks that are to come behind it. */
static int begin(struct sink *s, const struct form *form, const char *prefix, long length)
{
	long more = form->width - (long)strlen(prefix) - length;
	int pad = more > 0 ? (int)more : 0;
	if (!form->left && !form->zero)
		fill(s, ' ', pad);
	emit(s, prefix, strlen(prefix));
	if (!form->left && form->zero)
		fill(s, '0', pad);
	return form->left ? pad : 0;
}

/* Text with a sign or prefix and zeros before it, padded to the width. */
static void field(struct sink *s, const struct form *form, const char *prefix, const char *text, int length, int zeros)
{
	int blanks = begin(s, form, prefix, (long)length + zeros);
	fill(s, '0', zeros);
	emit(s, text, (size_t)length);
	fill(s, ' ', blanks);
}

static const char *digits_of(int upper) { return upper ? "0123456789ABCDEF" : "0123456789abcdef"; }

static void whole(struct sink *s, struct form *form, unsigned long value, const char *sign, int base, int upper)
{
	char digits[24];
	const char *prefix = sign;
	int n = 0, zeros;

	if (form->hash && value && base == 16)
		prefix = upper ? "0X" : "0x";
	for (; value; value /= (unsigned)base)
		digits[sizeof digits - 1 - (size_t)n++] = digits_of(upper)[value % (unsigned)base];
	if (form->precision >= 0)
		form->zero = 0;
	zeros = (form->precision < 0 ? 1 : form->precision) - n;
	if (form->hash && base == 8 && zeros <= 0)
		zeros = 1;
	field(s, form, prefix, digits + sizeof digits - n, n, zeros > 0 ? zeros : 0);
}

/* Rounds to the first `keep` digits, halves to the even one; the number of digits that are left. */
static int rounded(char *digits, int count, long keep, int *exponent)
{
	int at = (int)keep, up;
	if (keep >= count)
		return count;
	if (keep < 0)
		return 0;
	up = digits[at] > '5' || (digits[at] == '5' && at > 0 && digits[at - 1] % 2 == 1);
	for (int i = at + 1; i < count && digits[at] == '5'; i++)
		up |= digits[i] != '0';
	if (!up)
		return at;
	while (at > 0 && digits[at - 1] == '9')
		at--;
	if (at == 0) {
		digits[0] = '1';
		++*exponent;
		return 1;
	}
	digits[at - 1]++;
	return at;
}

/* So many places of a number from the one behind `at` places on; a number has zeros before its first digit and behind its last one. */
static void places(struct sink *s, const char *digits, int count, long at, long wanted)
{
	for (; at < 0 && wanted > 0; at++, wanted--)
		emit(s, "0", 1);
	if (at < count && wanted > 0) {
		long here = count - at < wanted ? count - at : wanted;
		emit(s, digits + at, (size_t)here);
		wanted -= here;
	}
	fill(s, '0', (int)wanted);
}

/* The sign of a value, which is made positive. */
static const char *sign_of(const struct form *form, double *value)
{
	if (!__builtin_signbit(*value))
		return form->plus ? "+" : form->space ? " " : "";
	*value = -*value;
	return "-";
}

/* An exponent with its letter and at least so many digits, at the end of the text; where it begins. */
static const char *exponent_text(char *end, char letter, int exponent, int least)
{
	int left = exponent < 0 ? -exponent : exponent;
	for (; left > 0 || least > 0; left /= 10, least--)
		*--end = (char)('0' + left % 10);
	*--end = exponent < 0 ? '-' : '+';
	*--end = letter;
	return end;
}

/* An infinite value, or none: told in letters. */
static void letters(struct sink *s, struct form *form, const char *sign, double value, int upper)
{
	form->zero = 0;
	field(s, form, sign, value != value ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf", 3, 0);
}

static void fraction(struct sink *s, struct form *form, double value, char kind)
{
	char digits[DECIMAL_DIGITS + 9], power[8];
	const char *sign = sign_of(form, &value), *end = power + sizeof power, *behind = end;
	int upper = kind < 'a', general, count = 0, e = 0, blanks;
	long precision = form->precision < 0 ? 6 : form->precision, whole_places;

	if (value - value != 0) {
		letters(s, form, sign, value, upper);
		return;
	}
	kind |= 32;
	if (value != 0)
		count = decimal_digits(value, digits, &e);
	general = kind == 'g';
	if (general && precision == 0)
		precision = 1;
	count = rounded(digits, count, kind == 'f' ? e + 1 + precision : general ? precision : precision + 1, &e);
	if (general) {
		kind = e < -4 || e >= precision ? 'e' : 'f';
		precision -= kind == 'e' ? 1 : e + 1;
		/* Without '#', zeros at the end go. */
		if (!form->hash) {
			long last;
			while (count > 0 && digits[count - 1] == '0')
				count--;
			last = count - 1 - (kind == 'e' ? 0 : e);
			precision = last < 0 ? 0 : last < precision ? last : precision;
		}
	}
	if (kind == 'e') {
		behind = exponent_text(power + sizeof power, upper ? 'E' : 'e', e, 2);
		e = 0;
	}
	whole_places = e < 0 ? 1 : e + 1;
	blanks = begin(s, form, sign, whole_places + (precision > 0 || form->hash) + precision + (end - behind));
	places(s, digits, count, e < 0 ? e : 0, whole_places);
	if (precision > 0 || form->hash)
		emit(s, ".", 1);
	places(s, digits, count, e + 1, precision);
	emit(s, behind, (size_t)(end - behind));
	fill(s, ' ', blanks);
}

/* A number of base 16. It has 13 digits behind the point, and all bits of the mantissa are in one word. */
#define HEX_DIGITS 13
static void hexadecimal(struct sink *s, struct form *form, double value, int upper)
{
	char digits[HEX_DIGITS], power[8], prefix[4];
	const char *sign = sign_of(form, &value), *end = power + sizeof power, *behind;
	union { double d; unsigned long bits; } u = { value };
	int exponent = (int)(u.bits >> 52), count = 0, blanks;
	unsigned long mantissa = (u.bits & 0xfffffffffffffUL) | (exponent ? 1UL << 52 : 0);
	long precision = form->precision;

	if (value - value != 0) {
		letters(s, form, sign, value, upper);
		return;
	}
	exponent = exponent ? exponent - 1023 : mantissa ? -1022 : 0;
	if (precision >= 0 && precision < HEX_DIGITS) {
		unsigned long unit = 1UL << 4 * (HEX_DIGITS - precision), rest = mantissa % unit;
		mantissa -= rest;
		/* Halves go to the even digit. */
		if (rest > unit / 2 || (rest == unit / 2 && mantissa & unit))
			mantissa += unit;
	}
	for (unsigned long left = mantissa & 0xfffffffffffffUL; left; left = left << 4 & 0xfffffffffffffUL)
		digits[count++] = digits_of(upper)[left >> 48];
	if (precision < 0)
		precision = count;
	behind = exponent_text(power + sizeof power, upper ? 'P' : 'p', exponent, 1);
	strcpy(prefix, sign);
	strcat(prefix, upper ? "0X" : "0x");
	blanks = begin(s, form, prefix, 1 + (precision > 0 || form->hash) + precision + (end - behind));
	emit(s, digits_of(upper) + (mantissa >> 52), 1);
	if (precision > 0 || form->hash)
		emit(s, ".", 1);
	places(s, digits, count, 0, precision);
	emit(s, behind, (size_t)(end - behind));
	fill(s, ' ', blanks);
}

static void format(struct sink *s, const char *f, va_list list)
{
	for (; *f; f++) {
		struct form form = { .precision = -1 };
		int longs = 0, shorts = 0, wide = 0;
		const char *start = f;

		if (*f != '%') {
			while (f[1] && f[1] != '%')
				f++;
			emit(s, start, (size_t)(f + 1 - start));
			continue;
		}
		for (f++;; f++) {
			if (*f == '-')
				form.left = 1;
			else if (*f == '+')
				form.plus = 1;
			else if (*f == ' ')
				form.space = 1;
			else if (*f == '#')
				form.hash = 1;
			else if (*f == '0')
				form.zero = 1;
			else
				break;
		}
		if (*f == '*') {
			form.width = va_arg(list, int);
			if (form.width < 0) {
				form.left = 1;
				form.width = -form.width;
			}
			f++;
		}
		for (; *f >= '0' && *f <= '9'; f++)
			form.width = form.width * 10 + *f - '0';
		if (*f == '.') {
			form.precision = 0;
			if (*++f == '*') {
				form.precision = va_arg(list, int);
				f++;
			}
			for (; *f >= '0' && *f <= '9'; f++)
				form.precision = form.precision * 10 + *f - '0';
		}
		for (; *f == 'l' || *f == 'h' || *f == 'z' || *f == 'j' || *f == 't' || *f == 'L'; f++) {
			longs |= *f != 'h';
			shorts += *f == 'h';
			wide |= *f == 'L';
		}
		switch (*f) {
		case 'd':
		case 'i': {
			long value = longs ? va_arg(list, long) : va_arg(list, int);
			value = shorts > 1 ? (signed char)value : shorts ? (short)value : value;
			const char *sign = value < 0 ? "-" : form.plus ? "+" : form.space ? " " : "";
			whole(s, &form, value < 0 ? -(unsigned long)value : (unsigned long)value, sign, 10, 0);
			break;
		}
		case 'u':
		case 'x':
		case 'X':
		case 'o': {
			unsigned long value = longs ? va_arg(list, unsigned long) : va_arg(list, unsigned);
			value = shorts > 1 ? (unsigned char)value : shorts ? (unsigned short)value : value;
			whole(s, &form, value, "", *f == 'u' ? 10 : *f == 'o' ? 8 : 16, *f == 'X');
			break;
		}
		case 'p':
			form.hash = 1;
			whole(s, &form, (unsigned long)va_arg(list, void *), "", 16, 0);
			break;
		case 'c': {
			char c = (char)va_arg(list, int);
			form.zero = 0;
			field(s, &form, "", &c, 1, 0);
			break;
		}
		case 's': {
			const char *text = va_arg(list, const char *);
			const char *end;
			text = text ? text : "(null)";
			end = form.precision >= 0 ? memchr(text, 0, (size_t)form.precision) : text + strlen(text);
			form.zero = 0;
			field(s, &form, "", text, end ? (int)(end - text) : form.precision, 0);
			break;
		}
		case 'e': case 'E': case 'f': case 'F': case 'g': case 'G':
			/* A long double is told as precisely as a double. */
			fraction(s, &form, wide ? (double)va_arg(list, long double) : va_arg(list, double), *f);
			break;
		case 'a':
		case 'A':
			hexadecimal(s, &form, wide ? (double)va_arg(list, long double) : va_arg(list, double), *f == 'A');
			break;
		case '%':
			emit(s, "%", 1);
			break;
		case 0:
			return;
		default:
			emit(s, start, (size_t)(f + 1 - start));
		}
	}
}

int vsnprintf(char *to, size_t room, const char *f, va_list list)
{
	struct sink s = { NULL, to, room, 0 };
	format(&s, f, list);
	if (room > 0)
		to[s.count < room ? s.count : room - 1] = 0;
	return (int)s.count;
}

int vfprintf(FILE *to, const char *f, va_list list)
{
	struct sink s = { to, NULL, 0, 0 };
	format(&s, f, list);
	return (int)s.count;
}

/* A function of the family: its name, its parameters up to the format f, and what it does with the list of the others. */
#define OPEN(name, parameters, does) \
	int name parameters \
	{ \
		va_list list; \
		int n; \
		va_start(list, f); \
		n = does; \
		va_end(list); \
		return n; \
	}

OPEN(snprintf, (char *to, size_t room, const char *f, ...), vsnprintf(to, room, f, list))
OPEN(sprintf, (char *to, const char *f, ...), vsnprintf(to, (size_t)-1 >> 1, f, list))
OPEN(fprintf, (FILE *to, const char *f, ...), vfprintf(to, f, list))
OPEN(printf, (const char *f, ...), vfprintf(stdout, f, list))
