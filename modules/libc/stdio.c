/* Streams over the console, and text from values. There are no files here: opening one fails with ENOENT. */
#include "libc.h"
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

void *malloc(size_t);
void free(void *);
double floor(double);

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

/* Text with a sign or prefix, padded to the width. */
static void field(struct sink *s, const struct form *form, const char *prefix, const char *text, int length, int zeros)
{
	int pad = form->width - (int)strlen(prefix) - length - zeros;
	if (!form->left && !form->zero)
		fill(s, ' ', pad);
	emit(s, prefix, strlen(prefix));
	if (!form->left && form->zero)
		fill(s, '0', pad);
	fill(s, '0', zeros);
	emit(s, text, (size_t)length);
	if (form->left)
		fill(s, ' ', pad);
}

static void whole(struct sink *s, struct form *form, unsigned long value, const char *sign, int base, int upper)
{
	char digits[24];
	const char *prefix = sign;
	int n = 0, zeros;

	if (form->hash && value && base == 16)
		prefix = upper ? "0X" : "0x";
	for (; value; value /= (unsigned)base)
		digits[sizeof digits - 1 - (size_t)n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[value % (unsigned)base];
	if (form->precision >= 0)
		form->zero = 0;
	zeros = (form->precision < 0 ? 1 : form->precision) - n;
	if (form->hash && base == 8 && zeros <= 0)
		zeros = 1;
	field(s, form, prefix, digits + sizeof digits - n, n, zeros > 0 ? zeros : 0);
}

/* The decimal digits of a value that is not zero: 18 significant ones as a number, and the power of ten of the first. */
#define DIGITS 18
static unsigned long decimal(long double value, int *exponent)
{
	static const unsigned long most = 1000000000000000000UL;
	long double by = 10, scaled = value;
	int e = 0, shift;

	/* Near enough by the power of two, then made right. */
	__asm__("fxtract; fstp %%st(0)" : "=t"(scaled) : "0"(value));
	e = (int)floor((double)(scaled * 0.30102999566398119521L));
	shift = DIGITS - 1 - e;
	scaled = value;
	for (int n = shift < 0 ? -shift : shift; n > 0; n /= 2, by *= by)
		if (n & 1)
			scaled = shift < 0 ? scaled / by : scaled * by;
	if (scaled >= most) {
		scaled /= 10;
		e++;
	} else if (scaled < most / 10) {
		scaled *= 10;
		e--;
	}
	*exponent = e;
	return (unsigned long)(scaled + 0.5L);
}

/* Rounds 18 digits to the first `keep` of them; the text has 18. */
static void round_to(unsigned long digits, int keep, char *text, int *exponent)
{
	unsigned long unit = 1;
	if (keep < DIGITS) {
		for (int i = keep < 0 ? 0 : keep; i < DIGITS; i++)
			unit *= 10;
		unsigned long rest = digits % unit, half = unit / 2;
		/* Halves go to the even digit. */
		digits = digits / unit + (rest > half || (rest == half && digits / unit % 2 == 1));
		if (keep < 0)
			digits = 0;
		digits *= unit;
	}
	if (digits >= 1000000000000000000UL) {
		digits /= 10;
		++*exponent;
	}
	for (int i = DIGITS; i-- > 0; digits /= 10)
		text[i] = (char)('0' + digits % 10);
}

static void fraction(struct sink *s, struct form *form, double value, char kind)
{
	char text[DIGITS], out[420], power[8];
	const char *sign = form->plus ? "+" : form->space ? " " : "";
	int e = 0, precision = form->precision < 0 ? 6 : form->precision, n = 0, upper = kind < 'a', general;
	unsigned long digits = 0;

	kind |= 32;
	if (__builtin_signbit(value)) {
		sign = "-";
		value = -value;
	}
	if (value - value != 0) {
		form->zero = 0;
		field(s, form, value != value ? (*sign == '-' ? "-" : sign) : sign,
		      value != value ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf", 3, 0);
		return;
	}
	if (precision > 60)
		precision = 60;
	if (value != 0)
		digits = decimal(value, &e);
	general = kind == 'g';
	if (general && precision == 0)
		precision = 1;
	round_to(digits, kind == 'f' ? e + 1 + precision : general ? precision : precision + 1, text, &e);
	if (general) {
		kind = e < -4 || e >= precision ? 'e' : 'f';
		precision -= kind == 'e' ? 1 : e + 1;
		/* Without '#', zeros at the end go. */
		if (!form->hash) {
			int first = kind == 'e' ? 0 : e;
			while (precision > 0) {
				int at = first + precision;
				if (at >= 0 && at < DIGITS && text[at] != '0')
					break;
				precision--;
			}
		}
	}
#define DIGIT(i) ((i) >= 0 && (i) < DIGITS ? text[i] : '0')
	if (kind == 'e') {
		out[n++] = text[0];
	} else if (e < 0) {
		out[n++] = '0';
	} else {
		for (int i = 0; i <= e; i++)
			out[n++] = DIGIT(i);
	}
	if (precision > 0 || form->hash)
		out[n++] = '.';
	for (int i = 0; i < precision; i++)
		out[n++] = DIGIT((kind == 'e' ? 0 : e) + 1 + i);
	if (kind == 'e') {
		int left = e < 0 ? -e : e, m = 0;
		out[n++] = upper ? 'E' : 'e';
		out[n++] = e < 0 ? '-' : '+';
		for (; left > 0 || m < 2; left /= 10)
			power[m++] = (char)('0' + left % 10);
		while (m > 0)
			out[n++] = power[--m];
	}
	field(s, form, sign, out, n, 0);
}

static void hexadecimal(struct sink *s, struct form *form, double value, int upper)
{
	char out[32], *to = out;
	const char *sign = __builtin_signbit(value) ? "-0x" : "0x";
	union { double d; unsigned long bits; } u = { value };
	unsigned long mantissa = u.bits & 0xfffffffffffffUL;
	long exponent = (long)(u.bits >> 52 & 2047) - 1023;
	char power[8];
	int m = 0;

	if (exponent == 1024) {
		fraction(s, form, value, upper ? 'G' : 'g');
		return;
	}
	*to++ = exponent == -1023 ? '0' : '1';
	exponent = exponent == -1023 ? (mantissa ? -1022 : 0) : exponent;
	if (mantissa)
		*to++ = '.';
	for (; mantissa; mantissa = mantissa << 4 & 0xfffffffffffffUL)
		*to++ = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[mantissa >> 48];
	*to++ = upper ? 'P' : 'p';
	*to++ = exponent < 0 ? '-' : '+';
	exponent = exponent < 0 ? -exponent : exponent;
	do
		power[m++] = (char)('0' + exponent % 10);
	while (exponent /= 10);
	while (m > 0)
		*to++ = power[--m];
	field(s, form, sign, out, (int)(to - out), 0);
}

static void format(struct sink *s, const char *f, va_list list)
{
	for (; *f; f++) {
		struct form form = { .precision = -1 };
		int longs = 0;
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
		for (; *f == 'l' || *f == 'h' || *f == 'z' || *f == 'j' || *f == 't' || *f == 'L'; f++)
			longs |= *f != 'h';
		switch (*f) {
		case 'd':
		case 'i': {
			long value = longs ? va_arg(list, long) : va_arg(list, int);
			const char *sign = value < 0 ? "-" : form.plus ? "+" : form.space ? " " : "";
			whole(s, &form, value < 0 ? -(unsigned long)value : (unsigned long)value, sign, 10, 0);
			break;
		}
		case 'u':
		case 'x':
		case 'X':
		case 'o': {
			unsigned long value = longs ? va_arg(list, unsigned long) : va_arg(list, unsigned);
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
			fraction(s, &form, va_arg(list, double), *f);
			break;
		case 'a':
		case 'A':
			hexadecimal(s, &form, va_arg(list, double), *f == 'A');
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
