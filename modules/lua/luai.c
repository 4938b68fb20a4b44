/* An interpreter: runs each argument as a chunk, or what is typed, line by line. */
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include <string.h>

static int run(lua_State *L, const char *chunk, const char *name)
{
	char asked[300];
	int failed = LUA_ERRSYNTAX;

	/* An expression is shown, as in other interpreters. */
	if (strlen(chunk) < sizeof asked - 10) {
		strcpy(asked, "return ");
		strcat(asked, chunk);
		failed = luaL_loadbuffer(L, asked, strlen(asked), name);
	}
	if (failed) {
		lua_settop(L, 0);
		failed = luaL_loadbuffer(L, chunk, strlen(chunk), name);
	}
	if (!failed)
		failed = lua_pcall(L, 0, LUA_MULTRET, 0);
	if (failed) {
		lua_writestringerror("%s\n", lua_tostring(L, -1));
	} else if (lua_gettop(L) > 0) {
		lua_getglobal(L, "print");
		lua_insert(L, 1);
		failed = lua_pcall(L, lua_gettop(L) - 1, 0, 0);
	}
	lua_settop(L, 0);
	return failed != LUA_OK;
}

int main(int count, char **arguments)
{
	lua_State *L = luaL_newstate();
	char line[512];
	int failed = 0;

	if (!L)
		return 1;
	luaL_openlibs(L);
	for (int i = 1; i < count; i++)
		failed |= run(L, arguments[i], "=argument");
	while (count < 2 && (lua_writestring("> ", 2), fgets(line, sizeof line, stdin))) {
		line[strcspn(line, "\n")] = 0;
		run(L, line, "=line");
		lua_writeline();
	}
	lua_close(L);
	return failed;
}
