/* The user runtime for programs in C that are modules (docs/modules.md, decision 0066). SPDX-License-Identifier: MIT OR Apache-2.0

   Link against modules/rt/rt.md. Nothing of it is copied into a program: its text stands once, and it keeps what it
   knows of a program (heap, modules) in memory of the program's own, which it finds from the stack of the calling thread.
   So it may be called by the program's first thread and by those that rt_thread_start starts. Any other thread,
   and a thread that has changed to a stack of its own making, has no state: what needs state says so and ends the thread
   with status 126 (inside a protected procedure: ends the call, CalleeFault). Functions marked "no state" do without, but
   the first call from a module to another that is bound late needs state too: whatever a thread without state
   calls must have been called before, or be used otherwise than by calls (its address taken), which binds it at the start.

   Where the runtime itself lacks memory it says so, and the calling thread ends with status 101 (inside a protected procedure:
   the call ends, CalleeFault). If that was while it made an instance or bound an import, the table of modules stays
   locked, and others that want the same wait for ever: who sees a thread end with 101 should end the program.

   Functions that return an rt_error give 0, or why they failed: a number of the system's table (GOND_E_..., gondwana.h) or one
   of RT_E_... Results are written only on success; a pointer for a result may be null. Costs are instructions of user and kernel
   together, roughly; "a call" is what the system call takes (docs/spec/abi.md says its errors and rights). */
#ifndef GONDWANA_RT_H
#define GONDWANA_RT_H
#include <stddef.h>
#include <stdint.h>

typedef uint64_t rt_error;

#define RT_E_NoSuchName 256     /* a directory has no such name */
#define RT_E_WrongKind 257      /* the name stands for something of another kind */
#define RT_E_Path 258           /* the text is not a path */
#define RT_E_Directory 259      /* the object is no well-formed directory */
#define RT_E_Clist 260          /* the object is no well-formed Clist */
#define RT_E_NotAProgram 261    /* the object is not a program image */
#define RT_E_ArgumentsTooLong 262
#define RT_E_NoModule 263       /* nobody has installed the module, or one that it imports: 'module install FILE' */
#define RT_E_NoExport 264       /* the module exports no such name */
#define RT_E_BadModule 265      /* the module is damaged, or not what its user was linked against */
#define RT_E_ModuleInUse 266
#define RT_E_NoInstance 267     /* the handle is none */

/* ---- the end, the console ---- */

/* The entry of programs, for who starts them: word is the address of a start page. Never called by a program. */
void rt_start(uint64_t word) __attribute__((noreturn));

/* Ends the calling thread with a status; the last thread of a task takes the task with it. Streams of the C library are not
   flushed and destructors not called: exit() of <stdlib.h> does that. No state. Cost: ThreadDelete. */
void rt_exit(uint64_t status) __attribute__((noreturn));

/* Writes bytes to the terminal, all of them unless the terminal fails. No state. Cost: one ConsoleWrite. */
void rt_write(const void *from, size_t bytes);

/* Writes a string to the terminal; nothing, if it is not UTF-8. No state. */
void rt_print(const char *text);

/* Reads from the terminal, at least a byte, at most `bytes`; *read is how many, 0 at the end of the input. Waits. No state.
   Errors: as ConsoleRead. */
rt_error rt_read(void *into, size_t bytes, size_t *read);

/* Writes what an error means as a string of at most `bytes` with its end, and gives its length. No state. */
size_t rt_error_text(rt_error error, char *into, size_t bytes);

/* ---- the heap: apart from malloc's, shared by the threads of the program ---- */

/* At least `bytes` bytes, aligned to 16, of any content; null if there is no memory. Blocks of more than 32,752 bytes are
   objects of their own, 256 of them at most. Cost: some 60; an object more: ObjCreate and a first touch. */
void *rt_alloc(size_t bytes);

/* Gives a block of rt_alloc back, once; null is ignored. Cost: some 40; a large one: ObjDelete. */
void rt_free(void *block);

/* ---- objects ---- */

typedef struct { uint64_t base, bytes, password; } rt_object;

/* A new transient object of at least `bytes` zero bytes: it goes with the task unless it is kept. The password is that of
   its owner capability, all rights; the caller's domain has them without it. No state. Errors: BadArgument for 0 bytes, NoMemory,
   LimitReached. Cost: ObjCreate. */
rt_error rt_object_create(uint64_t bytes, rt_object *made);

/* The object that holds an address; its password stays 0. Right: R. Errors: BadAddress, Protection; InUse for memory that
   is the program's own already: a stack, its start object, its heap. Cost: ObjInfo. */
rt_error rt_object_open(uint64_t address, rt_object *found);

/* Makes it persistent: it stays until it is deleted. Right: all. No state. Errors: as KeepObject. */
rt_error rt_object_keep(uint64_t base);

/* Destroys it at once, for everybody. Right: R and D: it opens it first. Errors: as ObjDelete and rt_object_open. */
rt_error rt_object_delete(uint64_t base);

/* ---- names ---- */

#define RT_KIND_Directory 1
#define RT_KIND_Program 2
#define RT_KIND_Data 3
#define RT_KIND_Clist 4
#define RT_KIND_Service 5
#define RT_KIND_Module 6

typedef struct { uint64_t kind, address, password, word; } rt_found;

/* What a path leads to, from the root directory. The capability gives the rights that whoever made the name granted.
   Right: R on each directory on the way. Errors: NoSuchName, WrongKind (a name on the way is no directory), Path, Directory;
   BadArgument for text that is not UTF-8. Cost: an ObjInfo for each directory and a comparison for each name in it. */
rt_error rt_look_up(const char *path, rt_found *found);

/* ---- threads ---- */

/* Starts a thread of the program that calls run(with) and ends with what that returns. `run` is a pointer as C has it: the
   function may have variables of its module. Errors: as ThreadCreate. Without memory for 24 bytes the calling thread ends (status
   101), as wherever the runtime itself lacks memory. Cost: ThreadCreate and some 150. */
rt_error rt_thread_start(uint64_t (*run)(void *), void *with, uint64_t *thread);

/* Waits until a thread has ended; *status is what it ended with. For the thread that started it. No state. Errors: as
   ThreadWait. */
rt_error rt_thread_wait(uint64_t thread, uint64_t *status);

/* ---- state, for threads and protected procedures that others have made ---- */

/* The state that the calling thread finds; 0 if it has none. Cost: some 20. No state. */
uint64_t rt_state(void);

/* Makes a state in memory of at least 128 KiB, page-aligned, zero, and nobody else's; it lasts as long as that.
   What is made for the state (blocks, modules) lies there and nowhere else: it never makes objects, because one that is made in
   a protected call is the calling task's and goes with it. So when it is full there is no memory: the first 64 KiB
   are for the state and blocks, none of more than 32,752 bytes, the rest is for modules. Right: RW (RWX to instantiate modules). No
   state. Errors: BadArgument. Cost: some 200. */
rt_error rt_state_make(uint64_t address, uint64_t bytes, uint64_t *state);

/* Lets the calling thread find a state from now on. The two topmost words of the stack must hold nothing: an entry in assembly
   begins with `sub $16, %rsp`. No state. Errors: BadAddress on memory that is no stack of the system, BadArgument where
   no state is; an address that a program may have but without memory that can be read faults. Cost: some 40. */
rt_error rt_attach(uint64_t state);

/* ---- modules: what dlopen and dlsym are elsewhere ---- */

/* The program's instance of a module, made of its newest version if there is none (NAME-VERSION: of that). The same handle
   for who asks again. Right: RX on the module, which every domain that starts from the root Clist has. Errors: NoModule,
   BadModule, as ObjCreate, PageCopy, PageLimit. Cost: a name; a new instance: some 6,000 and its first pages. */
rt_error rt_module(const char *name, uint64_t *handle);

/* The address of an export: a function, which is called as any, or a variable. Errors: NoInstance, NoExport. Cost: a comparison
   for each export before it. */
rt_error rt_symbol(uint64_t handle, const char *name, uint64_t *address);

/* Why rt_module or rt_symbol failed last in this program, in words, and what to do; at most `bytes` with the end. Gives its
   length. */
size_t rt_message(char *into, size_t bytes);

#endif
