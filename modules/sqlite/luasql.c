/* Lua with sqlite3: both libraries in one program. sql(TEXT) gives the rows as a table of tables. */
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include "sqlite3.h"

static sqlite3 *database;

static int add_row(void *context, int columns, char **values, char **names)
{
	lua_State *L = context;

	lua_createtable(L, columns, columns);
	for (int i = 0; i < columns; i++) {
		lua_pushstring(L, values[i]);
		lua_pushvalue(L, -1);
		lua_rawseti(L, -3, i + 1);
		lua_setfield(L, -2, names[i]);
	}
	lua_rawseti(L, -2, luaL_len(L, -2) + 1);
	return 0;
}

static int sql(lua_State *L)
{
	char *why = NULL;
	const char *text = luaL_checkstring(L, 1);

	lua_newtable(L);
	if (sqlite3_exec(database, text, add_row, L, &why) != SQLITE_OK)
		return luaL_error(L, "%s", why);
	return 1;
}

int main(int count, char **arguments)
{
	lua_State *L = luaL_newstate();
	int failed = 0;

	if (!L || sqlite3_open(":memory:", &database) != SQLITE_OK)
		return 1;
	luaL_openlibs(L);
	lua_register(L, "sql", sql);
	for (int i = 1; i < count && !failed; i++) {
		failed = luaL_dostring(L, arguments[i]) != LUA_OK;
		if (failed)
			lua_writestringerror("luasql: %s\n", lua_tostring(L, -1));
	}
	lua_close(L);
	return failed | (sqlite3_close(database) != SQLITE_OK);
}
