/* Sorts its arguments by a rule that is written in Lua: the library calls back into the program, and that into it. */
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include <stdio.h>
#include <stdlib.h>

static lua_State *L;

static int by_rule(const void *a, const void *b)
{
	int result;
	lua_pushvalue(L, 1);
	lua_pushstring(L, *(char *const *)a);
	lua_pushstring(L, *(char *const *)b);
	lua_call(L, 2, 1);
	result = (int)lua_tointeger(L, -1);
	lua_pop(L, 1);
	return result;
}

int main(int count, char **arguments)
{
	L = luaL_newstate();
	if (!L)
		return 1;
	luaL_openlibs(L);
	luaL_loadstring(L, "local a, b = ... ; if #a ~= #b then return #a - #b end ; return a < b and -1 or a > b and 1 or 0");
	qsort(arguments + 1, (size_t)count - 1, sizeof *arguments, by_rule);
	for (int i = 1; i < count; i++)
		printf(i > 1 ? " %s" : "%s", arguments[i]);
	printf("\n");
	return 0;
}
