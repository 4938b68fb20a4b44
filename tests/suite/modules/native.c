/* A program in C on the runtime, which the suite starts. It ends with the line of the first check that failed, or 0. */
#include "../../../abi/golden/gondwana.h"
#include "../../../modules/rt/rt.h"

#include <stdarg.h>

#define CHECK(what) do { if (!(what)) return __LINE__; } while (0)
#define LARGE 100000
#define THREADS 4

static uint64_t shared, finished;

/* Of the module `counter`, only called: bound at the first call. */
long counter_next(void);

static int same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static int heap(void)
{
	unsigned char *blocks[200];

	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 200; i++) {
			blocks[i] = rt_alloc(i * 13);
			CHECK(blocks[i] && (uint64_t)blocks[i] % 16 == 0);
			for (unsigned at = 0; at < i * 13; at++)
				blocks[i][at] = (unsigned char)i;
		}
		for (unsigned i = 0; i < 200; i++) {
			for (unsigned at = 0; at < i * 13; at++)
				CHECK(blocks[i][at] == (unsigned char)i);
			rt_free(blocks[i]);
		}
	}
	blocks[0] = rt_alloc(LARGE);
	CHECK(blocks[0]);
	blocks[0][LARGE - 1] = 1;
	/* What is the heap's is no object of the program's. */
	CHECK(rt_object_open((uint64_t)blocks[0], 0) == GOND_E_InUse);
	rt_free(blocks[0]);
	rt_free(0);
	CHECK(!rt_alloc((size_t)-1));
	return 0;
}

static int objects(void)
{
	rt_object made, found;
	rt_found name;

	CHECK(rt_object_create(5000, &made) == 0 && made.bytes == 8192 && made.password);
	((uint64_t *)made.base)[1023] = 7;
	CHECK(rt_object_open(made.base + 8, &found) == 0 && found.base == made.base && found.bytes == 8192);
	CHECK(rt_object_delete(made.base) == 0);
	CHECK(rt_object_open(made.base, &found) == GOND_E_BadAddress);
	CHECK(rt_object_create(0, &made) == GOND_E_BadArgument);
	CHECK(rt_object_open((uint64_t)&made, &found) == GOND_E_InUse);
	CHECK(rt_look_up("/modules/rt", &name) == 0 && name.kind == RT_KIND_Module);
	/* The runtime stands there once, for everybody. */
	CHECK((uint64_t)rt_alloc - name.address < name.word);
	CHECK(rt_look_up("modules", &name) == 0 && name.kind == RT_KIND_Directory);
	CHECK(rt_look_up("modules/rt/x", 0) == RT_E_WrongKind);
	CHECK(rt_look_up("nothing like it", &name) == RT_E_NoSuchName);
	return 0;
}

static uint64_t work(void *with)
{
	uint64_t *block = rt_alloc(64);

	block[0] = (uint64_t)with;
	__atomic_add_fetch(&shared, block[0], __ATOMIC_SEQ_CST);
	rt_free(block);
	__atomic_add_fetch(&finished, rt_state() != 0, __ATOMIC_SEQ_CST);
	return (uint64_t)with + 100;
}

static int threads(void)
{
	uint64_t all[THREADS], status;

	/* Again and again: stacks are used again. */
	for (unsigned round = 1; round <= 3; round++) {
		for (uint64_t i = 0; i < THREADS; i++)
			CHECK(rt_thread_start(work, (void *)i, &all[i]) == 0);
		for (uint64_t i = 0; i < THREADS; i++)
			CHECK(rt_thread_wait(all[i], &status) == 0 && status == i + 100);
		CHECK(finished == round * THREADS && shared == round * (0 + 1 + 2 + 3));
	}
	CHECK(rt_thread_wait(1, &status) == GOND_E_NoSuchThread);
	return 0;
}

static int modules(void)
{
	uint64_t counter, again, address, handle;
	char text[200];
	int named = 0;

	CHECK(rt_module("counter", &counter) == 0 && rt_module("counter", &again) == 0 && again == counter);
	CHECK(rt_symbol(counter, "counter_next", &address) == 0);
	for (long round = 1; round <= 3; round++)
		CHECK(((long (*)(void))address)() == round);
	CHECK(rt_symbol(counter, "nothing_like_it", &address) == RT_E_NoExport);
	CHECK(rt_symbol(77, "counter_next", &address) == RT_E_NoInstance && rt_symbol(0, "x", 0) == RT_E_NoInstance);
	CHECK(rt_module("absent", &handle) == RT_E_NoModule);
	CHECK(rt_message(text, sizeof text) > 20);
	for (const char *at = text; *at; at++)
		named |= at[0] == 'a' && at[1] == 'b' && at[2] == 's' && at[3] == 'e';
	CHECK(named);
	CHECK(rt_message(text, 5) == 4 && !text[4]);
	CHECK(rt_error_text(GOND_E_NoMemory, text, sizeof text) > 10 && rt_error_text(9999, text, sizeof text) > 4);
	return 0;
}

/* Functions that make system calls have no variables of their own: a call changes the data register for a moment. */
static __attribute__((noinline)) uint64_t thread_create(uint64_t entry, uint64_t parameter)
{
	return ThreadCreate(entry, parameter, 3).value;
}

/* The first function of a thread: calls what its word is the address of. */
void bare(void);
__asm__(".text\n"
	".globl bare\n"
	".type bare, @function\n"
	"bare:\n"
	"	mov %rdi, %rax\n"
	"	mov $16, %edi\n"
	"	call *%rax\n"
	"	ud2\n"
	".size bare, . - bare\n");

static uint64_t sum(uint64_t count, ...)
{
	va_list list;
	uint64_t all = 0;

	shared++;
	va_start(list, count);
	while (count-- > 0)
		all = all * 10 + va_arg(list, uint64_t);
	va_end(list);
	return all;
}

/* The program ends while its destructors run, with what they found. */
static uint64_t ending;

__attribute__((destructor)) static void ended_first(void)
{
	if (ending)
		ending += counter_next();
}

__attribute__((destructor(200))) static void ended_last(void)
{
	if (ending)
		rt_exit(ending);
}

/* Has private data, so there is a thunk before it, which copies what stands on the stack. */
static uint64_t (*volatile pointer)(uint64_t, ...) = sum;

static uint64_t sums(void *with)
{
	rt_exit((uint64_t)with + pointer(2, 1UL, 2UL) + pointer(7, 1UL, 2UL, 3UL, 4UL, 5UL, 6UL, 7UL));
}

static uint64_t sums_here(void)
{
	return pointer(0) + pointer(7, 1UL, 2UL, 3UL, 4UL, 5UL, 6UL, 7UL);
}

/* Calls a function on the stack that ends at an address. */
uint64_t on_stack(uint64_t end, uint64_t (*call)(void));
__asm__(".text\n"
	".globl on_stack\n"
	".type on_stack, @function\n"
	"on_stack:\n"
	"	push %rbp\n"
	"	mov %rsp, %rbp\n"
	"	mov %rdi, %rsp\n"
	"	call *%rsi\n"
	"	mov %rbp, %rsp\n"
	"	pop %rbp\n"
	"	ret\n"
	".size on_stack, . - on_stack\n");

/* A variadic function is called where the stack ends: a thunk reads nothing behind it. */
static int variadic(void)
{
	uint64_t thread, status;
	rt_object stack;

	CHECK((thread = thread_create((uint64_t)bare, (uint64_t)sums)));
	CHECK(rt_thread_wait(thread, &status) == 0 && status == 16 + 12 + 1234567);
	CHECK(rt_object_create(3 * 4096, &stack) == 0);
	for (uint64_t below = 0; below < 1024; below += 16)
		CHECK(on_stack(stack.base + stack.bytes - below, sums_here) == 1234567);
	return 0;
}

/* A thread that the runtime did not start: who needs state is ended by it, who needs none is not. */
static int foreign(void)
{
	uint64_t thread, status;

	CHECK((thread = thread_create((uint64_t)bare, (uint64_t)rt_alloc)));
	CHECK(rt_thread_wait(thread, &status) == 0 && status == 126);
	CHECK((thread = thread_create((uint64_t)bare, (uint64_t)rt_exit)));
	CHECK(rt_thread_wait(thread, &status) == 0 && status == 16);
	/* The others go on. */
	CHECK(rt_alloc(8) && rt_state());
	return 0;
}

static uint64_t counts(void *with)
{
	rt_exit((uint64_t)with + (uint64_t)counter_next());
}

/* A thread without state cannot have an import bound that waits for its first call, and keeps nobody from it. */
static int late(void)
{
	uint64_t thread, status;

	for (int round = 0; round < 2; round++) {
		CHECK((thread = thread_create((uint64_t)bare, (uint64_t)counts)));
		CHECK(rt_thread_wait(thread, &status) == 0 && status == 126);
	}
	CHECK(counter_next() == 1);
	/* Now it is bound for everybody. */
	CHECK((thread = thread_create((uint64_t)bare, (uint64_t)counts)));
	CHECK(rt_thread_wait(thread, &status) == 0 && status == 16 + 2);
	return 0;
}

/* The heap has no more: the runtime itself then lacks memory, and ends the thread, here the only one. */
static int exhausted(void)
{
	while (rt_alloc(LARGE))
		;
	while (rt_alloc(8))
		;
	rt_thread_start(work, 0, 0);
	return __LINE__;
}

int main(int count, char **arguments)
{
	CHECK(count == 2 && !arguments[2] && same(arguments[0], "native"));
	if (same(arguments[1], "heap"))
		return heap();
	if (same(arguments[1], "objects"))
		return objects();
	if (same(arguments[1], "threads"))
		return threads();
	if (same(arguments[1], "modules"))
		return modules();
	if (same(arguments[1], "foreign"))
		return foreign();
	if (same(arguments[1], "variadic"))
		return variadic();
	if (same(arguments[1], "destructors")) {
		ending = 40 + counter_next();
		return 0;
	}
	if (same(arguments[1], "late"))
		return late();
	if (same(arguments[1], "exhausted"))
		return exhausted();
	if (same(arguments[1], "crash"))
		*(volatile int *)16 = 1;
	return __LINE__;
}
