/* A program with Lua as a library module: callbacks, errors that jump over both modules, coroutines. */
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"

static lua_State *state;
static int made_calls;

static int add(lua_State *L)
{
	made_calls++;
	lua_pushinteger(L, luaL_checkinteger(L, 1) + luaL_checkinteger(L, 2));
	return 1;
}

/* Calls back into Lua, and lets an error pass through. */
static int guard(lua_State *L)
{
	made_calls++;
	lua_pushvalue(L, 1);
	if (lua_pcall(L, 0, 1, 0) != LUA_OK)
		return luaL_error(L, "again: %s %d %d %d %d %d %s", lua_tostring(L, -1), 1, 2, 3, 4, 5, "end");
	return 1;
}

static int resume(lua_State *L, int status, lua_KContext context)
{
	(void)status;
	lua_pushinteger(L, lua_tointeger(L, -1) + (lua_Integer)context);
	return 1;
}
static int pause(lua_State *L) { return lua_yieldk(L, 0, 500, resume); }

int start(void)
{
	static const char *const script =
		"total = 0\n"
		"function step(n)\n"
		"  local t = {}\n"
		"  for i = 1, 50 do t[i] = add(i * 7 % 50, n) end\n"
		"  table.sort(t, function(a, b) return a > b end)\n"
		"  local ok, why = pcall(guard, function() error('lost', 0) end)\n"
		"  assert(not ok and why == 'again: lost 1 2 3 4 5 end', why)\n"
		"  assert(guard(function() return 5 end) == 5)\n"
		"  local co = coroutine.wrap(function() local x = pause(); coroutine.yield(x); return 9 end)\n"
		"  co(); assert(co(11) == 511); assert(co() == 9)\n"
		"  local s = ('%d %s %5.2f %x'):format(t[1], 'x', 1.5, 255)\n"
		"  s = s:gsub('%d+', function(d) return '<' .. d .. '>' end)\n"
		"  assert(s == ('<%d> x  <1>.<50> ff'):format(t[1]), s)\n"
		"  assert(math.floor(math.sqrt(17) * 1000) == 4123)\n"
		"  total = total + t[1] + #t\n"
		"  collectgarbage()\n"
		"  return total\n"
		"end\n";

	state = luaL_newstate();
	if (state == NULL)
		return 1;
	luaL_openlibs(state);
	lua_register(state, "add", add);
	lua_register(state, "guard", guard);
	lua_register(state, "pause", pause);
	return luaL_dostring(state, script) == LUA_OK ? 0 : 2;
}

/* The total, or what went wrong as a negative number. */
long step(long n)
{
	long result;

	lua_getglobal(state, "step");
	lua_pushinteger(state, n);
	if (lua_pcall(state, 1, 1, 0) != LUA_OK) {
		lua_writestringerror("%s\n", lua_tostring(state, -1));
		return -1;
	}
	result = (long)lua_tointeger(state, -1);
	lua_pop(state, 1);
	return result;
}

int calls(void) { return made_calls; }
