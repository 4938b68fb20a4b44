/* Writes a JSON text of some 200 KiB and parses it. */
#include "kernel.h"
enum { ROOM = 1 << 18 };
static char text[ROOM];
static char *put(char *at, const char *word) { while (*word) *at++ = *word++; return at; }
static char *number(char *at, u32 value) {
    char digits[12]; int count = 0;
    do { digits[count++] = '0' + value % 10; value /= 10; } while (value);
    while (count) *at++ = digits[--count];
    return at;
}
static const char *value(const char *at, u64 *sum);
static const char *space(const char *at) { while (*at == ' ' || *at == '\n') at++; return at; }
static const char *string(const char *at, u64 *sum) {
    for (at++; *at != '"'; at++) { if (*at == '\\') at++; *sum = *sum * 31 + (u8)*at; }
    return at + 1;
}
static const char *list(const char *at, u64 *sum, char end) {
    at = space(at + 1);
    while (*at != end) {
        at = value(at, sum);
        at = space(at);
        if (*at == ':' || *at == ',') at = space(at + 1);
    }
    return at + 1;
}
static const char *value(const char *at, u64 *sum) {
    at = space(at);
    switch (*at) {
    case '"': return string(at, sum);
    case '[': return list(at, sum, ']');
    case '{': return list(at, sum, '}');
    case 't': *sum += 1; return at + 4;
    case 'f': *sum += 2; return at + 5;
    case 'n': *sum += 3; return at + 4;
    default: {
        u64 n = 0;
        int minus = *at == '-';
        if (minus) at++;
        while (*at >= '0' && *at <= '9') n = n * 10 + (u64)(*at++ - '0');
        if (*at == '.') for (at++; *at >= '0' && *at <= '9'; at++) n += (u64)(*at - '0');
        *sum += minus ? ~n : n;
        return at;
    }
    }
}
u64 run(u32 n) {
    u64 sum = 0;
    u32 state = 7;
    while (n--) {
        char *at = put(text, "[\n");
        while (at < text + ROOM - 300) {
            at = put(at, "{\"id\": "); at = number(at, next(&state));
            at = put(at, ", \"name\": \"an \\\"entry\\\" of the list\", \"tags\": [\"a\", \"bc\", null, true, false], \"at\": {\"x\": -");
            at = number(at, next(&state) & 0xffff); at = put(at, ".5, \"y\": "); at = number(at, state >> 20);
            at = put(at, "}},\n");
        }
        put(at, "null]")[0] = 0;
        value(text, &sum);
    }
    return sum;
}
