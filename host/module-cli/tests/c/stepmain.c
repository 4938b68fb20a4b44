/* Executes calls into another module one instruction after the other, and looks at each whether the caller is found from there,
 * with its data register. check() returns zero, or the number of the call that failed; wrong() tells where. */
#define _GNU_SOURCE
#include "steplib.h"
#include <signal.h>
#include <string.h>
#include <unwind.h>

static void *caller;
static unsigned long data;
static void *volatile wrong_at;
static volatile long steps;
static volatile int met, data_kept;

static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *unused)
{
	(void)unused;
	int before;
	unsigned long at = _Unwind_GetIPInfo(context, &before);
	if (_Unwind_FindEnclosingFunction((void *)(at - !before)) != caller)
		return _URC_NO_REASON;
	met = 1;
	/* Number 3 is rbx. */
	data_kept = _Unwind_GetGR(context, 3) == data;
	return _URC_END_OF_STACK;
}

static void at_each(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)info;
	if (wrong_at)
		return;
	met = data_kept = 0;
	_Unwind_Backtrace(frame, 0);
	steps++;
	if (!met || !data_kept)
		wrong_at = (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
}

static void *here(void) { return _Unwind_FindEnclosingFunction(__builtin_return_address(0)); }
static void *(*volatile where)(void) = here;

/* A callback of this module, which the other one calls through its thunk. */
static long added;
static long own(long a) { return plain(a) + added; }

/* Bit 8 of the flags: a trap after each instruction. */
#define STEP() __asm__ volatile("pushfq; orq $256, (%%rsp); popfq" ::: "memory", "cc")
#define RUN() __asm__ volatile("pushfq; andq $-257, (%%rsp); popfq" ::: "memory", "cc")

int check(void)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = at_each;
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGTRAP, &action, 0);
	caller = where();
	__asm__("mov %%rbx, %0" : "=r"(data));
	/* Bound before the traps begin, so that what they call does not bind. */
	where();
	at_each(0, 0, 0);
	steps = 0;
	long result;
	/* By the binder first, then not. */
	for (int round = 0; round < 2; round++) {
		STEP();
		result = plain(3);
		RUN();
		if (wrong_at || result != 4 + round)
			return 1 + 10 * round;
		STEP();
		result = seven(1, 2, 3, 4, 5, 6, 7);
		RUN();
		if (wrong_at || result != 28 + 4 + round)
			return 2 + 10 * round;
		STEP();
		result = ten(1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
		RUN();
		if (wrong_at || result != 55 + 4 + round)
			return 3 + 10 * round;
		STEP();
		result = many(3, 1L, 2L, 3L);
		RUN();
		if (wrong_at || result != 6)
			return 4 + 10 * round;
		STEP();
		result = back(own, 3);
		RUN();
		if (wrong_at || result != 5 + round)
			return 5 + 10 * round;
		plain(0);
		base(-1);
	}
	return 0;
}

static long deep(long a) { return ten(1, 2, 3, 4, 5, 6, 7, 8, 9, a) + added; }

/* For a debugger: calls to and fro, with words on the stack. */
int nested(void) { return back(deep, 10) == 60 ? 0 : 1; }

long stepped(void) { return steps; }
void *wrong(void) { return wrong_at; }
