/* The system calls that the library makes. They stand apart because a call changes rbx for a moment, which code with
   private data must not; so these functions have none, and every instance shares them. */
#include "libc.h"
#include "../../abi/golden/gondwana.h"

long sys_write(const void *from, unsigned long bytes)
{
	gond_result r = ConsoleWrite(0, (uint64_t)from, bytes);
	return r.error ? -1 : (long)r.value;
}

long sys_read(void *to, unsigned long bytes)
{
	gond_result r = ConsoleRead(0, (uint64_t)to, bytes);
	return r.error ? -1 : (long)r.value;
}

void *sys_object(unsigned long bytes)
{
	gond_result r = ObjCreate(bytes, 0);
	return r.error ? 0 : (void *)r.value;
}

void sys_delete(void *object) { ObjDelete((uint64_t)object); }

/* Nanoseconds since boot, and since 1970. */
unsigned long sys_clock(unsigned long *since_1970)
{
	gond_result r = ClockRead();
	*since_1970 = r.value2;
	return r.value;
}

void sys_exit(long status)
{
	for (;;)
		ThreadDelete(0, (uint64_t)status);
}
