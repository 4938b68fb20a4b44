/* What the parts of the library know of each other. Everything else is declared by the headers of the compiler's own
   C library, whose types and macros programs are compiled with. */
#ifndef LIBC_H
#define LIBC_H

long sys_write(const void *from, unsigned long bytes);
long sys_read(void *to, unsigned long bytes);
void *sys_object(unsigned long bytes);
void sys_delete(void *object);
unsigned long sys_clock(unsigned long *since_1970);
void sys_exit(long status) __attribute__((noreturn));

/* Writes what is left in the streams. */
void flush_all(void);

#endif
