/* A program with Lua inside: a function of the program's own, called for numbers. Prints the sum of what a formula
   in x gives for x from 1 to 100. */
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include <stdio.h>

static long asked;
static int x_squared(lua_State *L)
{
	asked++;
	lua_pushinteger(L, luaL_checkinteger(L, 1) * luaL_checkinteger(L, 1));
	return 1;
}

int main(int count, char **arguments)
{
	lua_State *L = luaL_newstate();
	double sum = 0;

	if (!L)
		return 1;
	luaL_openlibs(L);
	lua_register(L, "squared", x_squared);
	luaL_loadstring(L, "local formula = ... ; return assert(load('local x = ... ; return ' .. formula))");
	lua_pushstring(L, count > 1 ? arguments[1] : "squared(x) // 2");
	if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
		printf("luacalc: %s\n", lua_tostring(L, -1));
		return 1;
	}
	for (int x = 1; x <= 100; x++) {
		lua_pushvalue(L, -1);
		lua_pushinteger(L, x);
		if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
			printf("luacalc: %s\n", lua_tostring(L, -1));
			return 1;
		}
		sum += lua_tonumber(L, -1);
		lua_pop(L, 1);
	}
	printf("%.14g, asked %ld times\n", sum, asked);
	return 0;
}
