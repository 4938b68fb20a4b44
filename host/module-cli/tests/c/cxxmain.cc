// Uses cxxlib. check() returns zero, or the line that failed.
#include "cxx.h"
#include <execinfo.h>
#include <pthread.h>
#include <stdexcept>
#include <typeinfo>
#include <unwind.h>

#define CHECK(condition) do { if (!(condition)) return __LINE__; } while (0)

static int destroyed;
static int finalized;
struct Mark { ~Mark() { destroyed++; } };
static struct Final { ~Final() { if (finalized) *(int *)finalized_at = 1; } static int *finalized_at; } final;
int *Final::finalized_at;

static int compare(const void *a, const void *b)
{
	Mark mark;
	if (*(const int *)a == 13 || *(const int *)b == 13)
		throw Worse(13, "unlucky");
	return *(const int *)a - *(const int *)b;
}

static int raises(void *kind) { Mark mark; return raise_kind((int)(long)kind); }
static int rethrows(void *kind)
{
	try {
		return raises(kind);
	} catch (const Failure &) {
		destroyed += 100;
		throw;
	}
}

static int catching(int kind)
{
	try {
		return through(rethrows, (void *)(long)kind);
	} catch (const Worse &worse) {
		return worse.why == "much worse" ? worse.number * 10 : -1;
	} catch (const Failure &failure) {
		return failure.number * 100;
	} catch (const std::exception &other) {
		return std::string(other.what()) == "of the library" ? 4000 : -1;
	} catch (int number) {
		return number;
	} catch (...) {
		return -5;
	}
}

static int exceptions()
{
	int before = alive();
	CHECK(catching(0) == 2 * before + 5);
	CHECK(destroyed == 1);
	CHECK(catching(1) == 42 && destroyed == 2);
	CHECK(catching(2) == 200 && destroyed == 103);
	CHECK(catching(3) == 30 && destroyed == 204);
	CHECK(catching(4) == 4000);
	CHECK(catching(5) == -5);
	CHECK(catches_all(raises, (void *)5) == 1005);
	CHECK(catches_all(raises, (void *)6) == 26);
	CHECK(catches_all(raises, (void *)2) == -1);
	CHECK(alive() == before);
	return 0;
}

static int stack_words()
{
	int before = alive();
	CHECK(raise_at(1, 1, 1, 1, 1, 1, 1, 1, 1) == (before + 1) * 100 + 1);
	try {
		raise_at(10, 20, 30, 40, 50, 60, 70, 80, 90);
		return __LINE__;
	} catch (const Failure &failure) {
		CHECK(failure.number == 90);
	}
	CHECK(alive() == before);
	return 0;
}

static int host_frames()
{
	int before = alive();
	int numbers[] = {5, 3, 9, 13, 1, 7};
	destroyed = 0;
	try {
		sort_with(numbers, 6, compare);
		return __LINE__;
	} catch (const Failure &failure) {
		CHECK(failure.number == 13 && std::string(failure.what()) == "unlucky");
	}
	CHECK(destroyed > 0 && alive() == before);
	int lucky[] = {5, 3, 9, 1};
	sort_with(lucky, 4, compare);
	CHECK(lucky[0] == 1 && lucky[1] == 3 && lucky[2] == 5 && lucky[3] == 9);
	return 0;
}

static int objects()
{
	int before = alive();
	Shape *shape = make_shape("round");
	Counted *counted = shape;
	Named *named = shape;
	CHECK(named->name("hello") == "hello, round" && counted->count() == 5);
	CHECK(dynamic_cast<Shape *>(counted) == shape && counted->self() == counted);
	CHECK(typeid(*named) == typeid(Shape) && typeid(*counted) != typeid(Counted));
	// By value: their addresses are passed, the last one's on the stack.
	CHECK(joined("a", "b", 1, 2, 3, 4, "a last text that is long enough not to be kept inside")
		== "ab10a last text that is long enough not to be kept inside");
	// Through a pointer to a member, which a virtual function is.
	int (Counted::*count)() = &Counted::count;
	CHECK((counted->*count)() == 5);
	CHECK(alive() == before + 1);
	delete counted;
	CHECK(alive() == before);
	// Each module has its own variable of an inline function.
	CHECK(calls_once() == 8 && calls_once() == 9 && ++made_once() == 8);
	return 0;
}

// What the back-trace must have met, innermost first.
static void *expected[4];
static int met;
static long depth;

static void *here() { return _Unwind_FindEnclosingFunction(__builtin_return_address(0)); }
static void *(*volatile where)() = here;

static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *)
{
	void *function = _Unwind_FindEnclosingFunction((void *)(_Unwind_GetIP(context) - 1));
	if (met < 4 && function == expected[met])
		met++;
	depth++;
	return _URC_NO_REASON;
}

static int innermost(void *)
{
	expected[0] = where();
	met = 0;
	depth = 0;
	_Unwind_Backtrace(frame, 0);
	void *frames[100];
	int found = backtrace(frames, 100);
	// The outermost of all may be nobody, whom backtrace() does not count.
	return found == depth || found == depth - 1 ? 0 : -1000;
}

static int tracing(const void *, const void *)
{
	expected[1] = where();
	return through(innermost, 0) < 0 ? 0 : 1;
}

static int __attribute__((noinline)) traces()
{
	expected[2] = where();
	int two[] = {2, 1};
	sort_with(two, 2, tracing);
	// If the callback found no difference, the numbers stay.
	CHECK(two[0] == 1);
	return 0;
}

static int backtraces()
{
	expected[3] = where();
	int line = traces();
	if (line)
		return line;
	CHECK(met == 4);
	return 0;
}

static int leaves(void *) { pthread_exit((void *)77); }
static void *thread(void *)
{
	Mark mark;
	through(leaves, 0);
	return 0;
}

static int forced_unwinding()
{
	int before = alive();
	destroyed = 0;
	pthread_t number;
	void *result;
	CHECK(pthread_create(&number, 0, thread, 0) == 0);
	CHECK(pthread_join(number, &result) == 0);
	CHECK(result == (void *)77 && destroyed == 1 && alive() == before);
	return 0;
}

extern "C" int check(void)
{
	int (*const all[])() = {exceptions, stack_words, host_frames, objects, backtraces, forced_unwinding};
	destroyed = 0;
	for (auto one : all)
		if (int line = one())
			return line;
	return 0;
}

extern "C" int exceptions_only(void)
{
	destroyed = 0;
	return exceptions();
}

/* The word that the destructor of a static object changes. */
extern "C" void tell_end(int *word)
{
	finalized = 1;
	Final::finalized_at = word;
}
