/* Made from abi/src/call.rs and abi/src/nucleus.rs; do not edit. SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef GONDWANA_H
#define GONDWANA_H
#include <stdint.h>

typedef struct { uint64_t error, value, value2; } gond_result;

#define GOND_E_Protection 1
#define GOND_E_BadAddress 2
#define GOND_E_BadArgument 3
#define GOND_E_NoMemory 4
#define GOND_E_DiskFull 5
#define GOND_E_LimitReached 6
#define GOND_E_InUse 7
#define GOND_E_TableFull 8
#define GOND_E_NotAnEntry 9
#define GOND_E_Locked 10
#define GOND_E_BadClist 11
#define GOND_E_NoSuchThread 12
#define GOND_E_NoSuchSemaphore 13
#define GOND_E_Deleted 14
#define GOND_E_TimedOut 15
#define GOND_E_CalleeFault 16
#define GOND_E_TooDeep 17
#define GOND_E_BadCall 18
#define GOND_E_CannotGrow 19
#define GOND_E_DiskError 20
#define GOND_E_Changed 21
#define GOND_E_NotInCall 22
#define GOND_E_NoHandler 23
#define GOND_E_NotPersistent 24

/* rbx, rbp and r12 to r15 do not survive a call: the stub keeps rbx and rbp, the compiler the rest. */
static inline gond_result gond_call(uint64_t n, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {
    gond_result r; register uint64_t r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("sub $128, %%rsp; push %%rbx; push %%rbp; syscall; pop %%rbp; pop %%rbx; add $128, %%rsp"
        : "=a"(r.error), "=d"(r.value), "=S"(r.value2), "+D"(a), "+r"(r10), "+r"(r8), "+r"(r9)
        : "a"(n), "S"(b), "d"(c) : "rcx", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
    return r;
}

static inline gond_result ThreadMyId(void) { return gond_call(0, 0, 0, 0, 0, 0, 0); }
static inline gond_result PdxCall(uint64_t entry, uint64_t parameter0, uint64_t pd, uint64_t parameter1, uint64_t parameter2, uint64_t parameter3) { return gond_call(1, entry, parameter0, pd, parameter1, parameter2, parameter3); }
static inline gond_result PdxReturn(uint64_t result, uint64_t result2) { return gond_call(2, result, result2, 0, 0, 0, 0); }
static inline gond_result DomainCall(uint64_t entry, uint64_t parameter0, uint64_t parameter1, uint64_t parameter2, uint64_t parameter3) { return gond_call(3, entry, parameter0, parameter1, parameter2, parameter3, 0); }
static inline gond_result ObjCreate(uint64_t bytes, uint64_t password) { return gond_call(8, bytes, password, 0, 0, 0, 0); }
static inline gond_result ObjDelete(uint64_t address) { return gond_call(9, address, 0, 0, 0, 0, 0); }
static inline gond_result ObjResize(uint64_t address, uint64_t bytes) { return gond_call(10, address, bytes, 0, 0, 0, 0); }
static inline gond_result ObjPasswd(uint64_t address, uint64_t password, uint64_t rights) { return gond_call(11, address, password, rights, 0, 0, 0); }
static inline gond_result ObjInfo(uint64_t address, uint64_t flags, uint64_t info, uint64_t room) { return gond_call(12, address, flags, info, room, 0, 0); }
static inline gond_result ObjCrePdx(uint64_t address, uint64_t password, uint64_t clist, uint64_t entries, uint64_t count) { return gond_call(13, address, password, clist, entries, count, 0); }
static inline gond_result KeepObject(uint64_t address) { return gond_call(14, address, 0, 0, 0, 0, 0); }
static inline gond_result ObjClone(uint64_t source, uint64_t extra_bytes, uint64_t password) { return gond_call(15, source, extra_bytes, password, 0, 0, 0); }
static inline gond_result ObjRetire(uint64_t address) { return gond_call(16, address, 0, 0, 0, 0, 0); }
static inline gond_result PageCopy(uint64_t from, uint64_t to, uint64_t pages) { return gond_call(24, from, to, pages, 0, 0, 0); }
static inline gond_result PageUnMap(uint64_t page, uint64_t pages, uint64_t disposition) { return gond_call(25, page, pages, disposition, 0, 0, 0); }
static inline gond_result PageFlush(uint64_t page, uint64_t pages) { return gond_call(26, page, pages, 0, 0, 0, 0); }
static inline gond_result PageLimit(uint64_t page, uint64_t pages, uint64_t rights) { return gond_call(27, page, pages, rights, 0, 0, 0); }
static inline gond_result ApdInsert(uint64_t slot, uint64_t clist) { return gond_call(32, slot, clist, 0, 0, 0, 0); }
static inline gond_result ApdDelete(uint64_t slot) { return gond_call(33, slot, 0, 0, 0, 0, 0); }
static inline gond_result ApdGet(uint64_t description, uint64_t room) { return gond_call(34, description, room, 0, 0, 0, 0); }
static inline gond_result ApdLock(uint64_t slot) { return gond_call(35, slot, 0, 0, 0, 0, 0); }
static inline gond_result ApdLookup(uint64_t address, uint64_t rights) { return gond_call(36, address, rights, 0, 0, 0, 0); }
static inline gond_result ApdFlush(void) { return gond_call(37, 0, 0, 0, 0, 0, 0); }
static inline gond_result TaskCreate(uint64_t entry, uint64_t parameter, uint64_t apd, uint64_t limit_pages, uint64_t priority) { return gond_call(40, entry, parameter, apd, limit_pages, priority, 0); }
static inline gond_result ThreadCreate(uint64_t entry, uint64_t parameter, uint64_t priority) { return gond_call(41, entry, parameter, priority, 0, 0, 0); }
static inline gond_result ThreadDelete(uint64_t thread, uint64_t status) { return gond_call(42, thread, status, 0, 0, 0, 0); }
static inline gond_result ThreadWait(uint64_t thread, uint64_t timeout_ns, uint64_t report, uint64_t room) { return gond_call(43, thread, timeout_ns, report, room, 0, 0); }
static inline gond_result ThreadSleep(uint64_t thread, uint64_t ns) { return gond_call(44, thread, ns, 0, 0, 0, 0); }
static inline gond_result ThreadResume(uint64_t thread) { return gond_call(45, thread, 0, 0, 0, 0, 0); }
static inline gond_result ThreadInfo(uint64_t thread, uint64_t report, uint64_t room) { return gond_call(46, thread, report, room, 0, 0, 0); }
static inline gond_result ExcptReg(uint64_t kind, uint64_t handler) { return gond_call(47, kind, handler, 0, 0, 0, 0); }
static inline gond_result ExcptReturn(uint64_t action, uint64_t address) { return gond_call(48, action, address, 0, 0, 0, 0); }
static inline gond_result SemCreate(uint64_t address, uint64_t value) { return gond_call(56, address, value, 0, 0, 0, 0); }
static inline gond_result SemDelete(uint64_t address) { return gond_call(57, address, 0, 0, 0, 0, 0); }
static inline gond_result SemWait(uint64_t address, uint64_t timeout_ns) { return gond_call(58, address, timeout_ns, 0, 0, 0, 0); }
static inline gond_result SemSignal(uint64_t address) { return gond_call(59, address, 0, 0, 0, 0, 0); }
static inline gond_result AddressWait(uint64_t address, uint64_t expected, uint64_t timeout_ns) { return gond_call(60, address, expected, timeout_ns, 0, 0, 0); }
static inline gond_result AddressWake(uint64_t address, uint64_t count) { return gond_call(61, address, count, 0, 0, 0, 0); }
static inline gond_result ConsoleWrite(uint64_t stream, uint64_t address, uint64_t bytes) { return gond_call(72, stream, address, bytes, 0, 0, 0); }
static inline gond_result ConsoleRead(uint64_t stream, uint64_t address, uint64_t bytes) { return gond_call(73, stream, address, bytes, 0, 0, 0); }
static inline gond_result ConsoleForeground(uint64_t thread) { return gond_call(74, thread, 0, 0, 0, 0, 0); }
static inline gond_result ClockRead(void) { return gond_call(75, 0, 0, 0, 0, 0, 0); }
static inline gond_result RandomRead(void) { return gond_call(76, 0, 0, 0, 0, 0, 0); }
static inline gond_result SystemInfo(uint64_t topic, uint64_t index, uint64_t buffer, uint64_t room) { return gond_call(77, topic, index, buffer, room, 0, 0); }
static inline gond_result SystemControl(uint64_t operation, uint64_t argument) { return gond_call(78, operation, argument, 0, 0, 0, 0); }
static inline gond_result NucleusLogWrite(uint64_t bytes, uint64_t count) { return gond_call(256, bytes, count, 0, 0, 0, 0); }
static inline gond_result NucleusMachineStop(uint64_t exit) { return gond_call(257, exit, 0, 0, 0, 0, 0); }
static inline gond_result NucleusThreadSelf(void) { return gond_call(258, 0, 0, 0, 0, 0, 0); }
static inline gond_result NucleusClockNow(void) { return gond_call(259, 0, 0, 0, 0, 0, 0); }
static inline gond_result NucleusSpaceCreate(uint64_t quota, uint64_t pager, uint64_t handler, uint64_t supervisor) { return gond_call(264, quota, pager, handler, supervisor, 0, 0); }
static inline gond_result NucleusSpaceDelete(uint64_t space) { return gond_call(265, space, 0, 0, 0, 0, 0); }
static inline gond_result NucleusSpaceControl(uint64_t space, uint64_t pager, uint64_t handler, uint64_t supervisor) { return gond_call(266, space, pager, handler, supervisor, 0, 0); }
static inline gond_result NucleusThreadCreate(uint64_t space, uint64_t rip, uint64_t rsp, uint64_t parameter, uint64_t priority) { return gond_call(272, space, rip, rsp, parameter, priority, 0); }
static inline gond_result NucleusThreadDelete(uint64_t thread) { return gond_call(273, thread, 0, 0, 0, 0, 0); }
static inline gond_result NucleusThreadExchange(uint64_t thread, uint64_t what) { return gond_call(274, thread, what, 0, 0, 0, 0); }
static inline gond_result NucleusThreadPriority(uint64_t thread, uint64_t priority) { return gond_call(275, thread, priority, 0, 0, 0, 0); }
static inline gond_result NucleusYield(void) { return gond_call(276, 0, 0, 0, 0, 0, 0); }
static inline gond_result NucleusIpc(uint64_t to, uint64_t from, uint64_t tag, uint64_t timeouts, uint64_t window) { return gond_call(280, to, from, tag, timeouts, window, 0); }
static inline gond_result NucleusMap(uint64_t source, uint64_t space, uint64_t window, uint64_t how) { return gond_call(288, source, space, window, how, 0, 0); }
static inline gond_result NucleusFlush(uint64_t fpage, uint64_t rights, uint64_t own) { return gond_call(289, fpage, rights, own, 0, 0, 0); }
static inline gond_result NucleusInterruptBind(uint64_t interrupt, uint64_t thread) { return gond_call(296, interrupt, thread, 0, 0, 0, 0); }
static inline gond_result NucleusInterruptMessage(uint64_t interrupt) { return gond_call(297, interrupt, 0, 0, 0, 0, 0); }
static inline gond_result NucleusKernelCheck(void) { return gond_call(304, 0, 0, 0, 0, 0, 0); }

#endif
