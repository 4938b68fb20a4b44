/* Matches regular expressions (literals, '.', '*', '+', '?', sets) against 64 KiB, by backtracking. */
#include "kernel.h"
enum { BYTES = 1 << 16 };
static char text[BYTES + 1];
static int one(const char *pattern, char c, const char **rest) {
    if (*pattern == '[') {
        int hit = 0;
        for (pattern++; *pattern != ']'; pattern++) {
            if (pattern[1] == '-') { hit |= c >= pattern[0] && c <= pattern[2]; pattern += 2; }
            else hit |= c == *pattern;
        }
        *rest = pattern + 1;
        return hit && c;
    }
    *rest = pattern + 1;
    return c && (*pattern == '.' || *pattern == c);
}
static const char *match(const char *pattern, const char *at) {
    const char *rest;
    if (!*pattern) return at;
    int hit = one(pattern, *at, &rest);
    switch (*rest) {
    case '?': {
        const char *end = hit ? match(rest + 1, at + 1) : 0;
        return end ? end : match(rest + 1, at);
    }
    case '*': case '+': {
        const char *from = at + (*rest == '+'), *last = at, *skip;
        while (one(pattern, *last, &skip)) last++;
        for (; last >= from; last--) {
            const char *end = match(rest + 1, last);
            if (end) return end;
        }
        return 0;
    }
    default: return hit ? match(rest, at + 1) : 0;
    }
}
static const char *const patterns[] = {"[a-e]+x?[0-9]+", "ab*c", "q[aeiou]*z", "[a-z][0-9][a-z]", "e.+e!"};
u64 run(u32 n) {
    u64 sum = 0;
    u32 state = 99;
    while (n--) {
        for (int i = 0; i < BYTES; i++) {
            u32 r = next(&state) >> 8;
            text[i] = r % 11 == 0 ? '!' : r % 5 == 0 ? '0' + r / 64 % 10 : 'a' + r / 64 % 26;
        }
        for (int p = 0; p < 5; p++)
            for (const char *at = text; *at; at++) {
                const char *end = match(patterns[p], at);
                if (end) sum = sum * 3 + (u64)(end - at);
            }
    }
    return sum;
}
