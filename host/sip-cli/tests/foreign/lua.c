#include "driver.h"
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#ifdef __wasm__
long long clock(void) { return 0; } /* for the pivots of large sorts */
#endif
static const char *script =
    "local t = {} for i = 1, 3000 do t[i] = (i * 7919) % 4001 end table.sort(t)\n"
    "local s = 0 for i, v in ipairs(t) do s = (s * 31 + v * i) % 1000003 end print(s)\n"
    "local words = {} for w in ('the quick brown fox jumps over the lazy dog'):gmatch('%a+') do words[#words + 1] = w:upper() end\n"
    "print(table.concat(words, ','), #words, ('%5.3f|%x|%q'):format(math.pi, 48879, 'a\\nb'))\n"
    "local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end print(fib(22), 2^53, 7 // 2, -7 % 3)\n"
    "local mt = setmetatable({}, {__index = function(_, k) return k * 2 end}) print(mt[21], rawlen(t))\n"
    "local co = coroutine.wrap(function(a) for i = 1, 3 do a = coroutine.yield(a * i) end return 'end' end)\n"
    "print(string.rep('ab', 5, '-'), ('hello'):gsub('l', {l = 'L'}), select('#', 1, 2, 3))\n";
int main(void) {
    lua_State *state = luaL_newstate();
    luaL_requiref(state, "_G", luaopen_base, 1), luaL_requiref(state, "table", luaopen_table, 1);
    luaL_requiref(state, "string", luaopen_string, 1), luaL_requiref(state, "math", luaopen_math, 1);
    luaL_requiref(state, "coroutine", luaopen_coroutine, 1);
    int result = luaL_loadstring(state, script);
    if (result == 0) lua_call(state, 0, 0);
    printf("%d %d\n", result, lua_gettop(state));
    return 0;
}
