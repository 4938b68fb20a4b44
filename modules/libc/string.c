/* Memory and strings: functions without data. */
#include <stddef.h>

void *memcpy(void *to, const void *from, size_t n)
{
	void *start = to;
	size_t words = n / 8;
	n %= 8;
	__asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
	return start;
}

void *memmove(void *to, const void *from, size_t n)
{
	char *t = to;
	const char *f = from;

	if (t <= f || t >= f + n)
		return memcpy(to, from, n);
	while (n-- > 0)
		t[n] = f[n];
	return to;
}

void *memset(void *to, int byte, size_t n)
{
	void *start = to;
	size_t words = n / 8;
	n %= 8;
	__asm__ volatile("rep stosq" : "+D"(to), "+c"(words) : "a"((byte & 255) * 0x0101010101010101UL) : "memory");
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(byte) : "memory");
	return start;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const unsigned char *x = a, *y = b;

	for (; n > 0; n--, x++, y++)
		if (*x != *y)
			return *x - *y;
	return 0;
}

void *memchr(const void *in, int byte, size_t n)
{
	const unsigned char *at = in;

	for (; n > 0; n--, at++)
		if (*at == (unsigned char)byte)
			return (void *)at;
	return NULL;
}

size_t strlen(const char *s)
{
	const char *end = s;
	while (*end)
		end++;
	return (size_t)(end - s);
}

int strcmp(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return (unsigned char)*a - (unsigned char)*b;
}

int strcoll(const char *a, const char *b) { return strcmp(a, b); }

int strncmp(const char *a, const char *b, size_t n)
{
	for (; n > 0 && *a && *a == *b; n--)
		a++, b++;
	return n == 0 ? 0 : (unsigned char)*a - (unsigned char)*b;
}

char *strcpy(char *to, const char *from)
{
	memcpy(to, from, strlen(from) + 1);
	return to;
}

char *strncpy(char *to, const char *from, size_t n)
{
	size_t i = 0;
	for (; i < n && from[i]; i++)
		to[i] = from[i];
	for (; i < n; i++)
		to[i] = 0;
	return to;
}

char *strcat(char *to, const char *from)
{
	strcpy(to + strlen(to), from);
	return to;
}

char *strchr(const char *s, int c)
{
	for (;; s++) {
		if (*s == (char)c)
			return (char *)s;
		if (!*s)
			return NULL;
	}
}

char *strrchr(const char *s, int c)
{
	const char *last = NULL;
	for (;; s++) {
		if (*s == (char)c)
			last = s;
		if (!*s)
			return (char *)last;
	}
}

size_t strspn(const char *s, const char *set)
{
	size_t n = 0;
	while (s[n] && strchr(set, s[n]))
		n++;
	return n;
}

size_t strcspn(const char *s, const char *set)
{
	size_t n = 0;
	while (s[n] && !strchr(set, s[n]))
		n++;
	return n;
}

char *strpbrk(const char *s, const char *set)
{
	s += strcspn(s, set);
	return *s ? (char *)s : NULL;
}

char *strstr(const char *s, const char *what)
{
	size_t n = strlen(what);
	for (; *s; s++)
		if (strncmp(s, what, n) == 0)
			return (char *)s;
	return n == 0 ? (char *)s : NULL;
}
