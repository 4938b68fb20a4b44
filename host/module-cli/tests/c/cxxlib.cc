// A module in C++: throws, is thrown through, has objects with destructors and virtual functions.
#include "cxx.h"
#include <cstdlib>
#include <stdexcept>

namespace {
int guards;
struct Guard {
	Guard() { guards++; }
	~Guard() { guards--; }
};
struct Hidden { int number; };
// Made when the instance is, destroyed when it goes.
struct Static {
	Guard guard;
	std::string text = "made when the instance was";
} kept;
}

const char *Failure::what() const { return "failure"; }
const char *Worse::what() const { return why.c_str(); }

Shape::Shape(std::string own) : own(std::move(own)) { guards++; }
Shape::~Shape() { guards--; }
std::string Shape::name(const std::string &greeting) { return greeting + ", " + own; }
int Shape::count() { return (int)own.size() + guards - guards; }
Shape *Shape::self() { guards++; guards--; return this; }

extern "C" int raise_kind(int kind)
{
	Guard guard;
	switch (kind) {
	case 0: return guards;
	case 1: throw 42;
	case 2: throw Failure(2);
	case 3: throw Worse(3, "much worse");
	case 4: throw std::runtime_error("of the library");
	case 5: throw Hidden{5};
	default: throw &kept;
	}
}

extern "C" long raise_at(long a, long b, long c, long d, long e, long f, long g, long h, long i)
{
	Guard guard;
	if (a + b + c + d + e + f + g + h + i > 100)
		throw Worse((int)i, "nine");
	return guards * 100 + i;
}

extern "C" int through(int (*call)(void *), void *argument)
{
	Guard first, second;
	return call(argument) + guards;
}

extern "C" void sort_with(int *numbers, long count, int (*compare)(const void *, const void *))
{
	Guard guard;
	qsort(numbers, count, sizeof *numbers, compare);
}

extern "C" Shape *make_shape(const char *name) { return new Shape(name); }
extern "C" std::string joined(std::string first, const std::string &second, long a, long b, long c, long d, std::string last)
{
	return first + second + std::to_string(guards - guards + a + b + c + d) + last;
}
extern "C" int alive(void) { return guards; }
extern "C" int calls_once(void) { return ++made_once(); }

extern "C" int catches_all(int (*call)(void *), void *argument)
{
	try {
		return call(argument);
	} catch (const Hidden &hidden) {
		return hidden.number + 1000;
	} catch (const Static *text) {
		return (int)text->text.size();
	} catch (...) {
		return -1;
	}
}
