// What C++ adds to a relocatable: entries with a personality routine, tables of handlers with types, groups, and
// functions in two parts.
struct Type { int number; };
struct Guard { ~Guard(); };
extern "C" int other(int);
extern "C" { int variable; }
Guard::~Guard() { variable++; }
inline int twice(int n) { Guard guard; return other(n) + other(n); }
extern "C" int raises(int n)
{
	Guard guard;
	if (n > 3)
		throw Type{n};
	return twice(n);
}
extern "C" int catches(int n)
{
	try {
		return raises(n);
	} catch (const Type &type) {
		return type.number;
	} catch (int number) {
		return -number;
	} catch (...) {
		return -1;
	}
}
extern "C" int left_out(int n) { Guard guard; return other(n); }
