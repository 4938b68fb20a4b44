/* A process that uses files in every way that WASI preview 1 has, and checks the answers. Each check has a
   number; the first that fails is the exit status. */
#include <stdint.h>
#define W(name) __attribute__((import_module("wasi_snapshot_preview1"), import_name(#name)))
typedef uint32_t u32; typedef uint64_t u64; typedef uint16_t u16;
typedef struct { void *base; u32 length; } vec;
extern void proc_exit(int) W(proc_exit) __attribute__((noreturn));
extern int fd_prestat_get(u32, void *) W(fd_prestat_get);
extern int fd_prestat_dir_name(u32, char *, u32) W(fd_prestat_dir_name);
extern int path_open(u32, u32, const char *, u32, u32, u64, u64, u32, u32 *) W(path_open);
extern int fd_write(u32, const vec *, u32, u32 *) W(fd_write);
extern int fd_read(u32, const vec *, u32, u32 *) W(fd_read);
extern int fd_pread(u32, const vec *, u32, u64, u32 *) W(fd_pread);
extern int fd_pwrite(u32, const vec *, u32, u64, u32 *) W(fd_pwrite);
extern int fd_seek(u32, int64_t, u32, u64 *) W(fd_seek);
extern int fd_tell(u32, u64 *) W(fd_tell);
extern int fd_close(u32) W(fd_close);
extern int fd_renumber(u32, u32) W(fd_renumber);
extern int fd_sync(u32) W(fd_sync);
extern int fd_advise(u32, u64, u64, u32) W(fd_advise);
extern int fd_allocate(u32, u64, u64) W(fd_allocate);
extern int fd_fdstat_get(u32, void *) W(fd_fdstat_get);
extern int fd_fdstat_set_flags(u32, u32) W(fd_fdstat_set_flags);
extern int fd_fdstat_set_rights(u32, u64, u64) W(fd_fdstat_set_rights);
extern int fd_filestat_get(u32, void *) W(fd_filestat_get);
extern int fd_filestat_set_size(u32, u64) W(fd_filestat_set_size);
extern int fd_filestat_set_times(u32, u64, u64, u32) W(fd_filestat_set_times);
extern int fd_readdir(u32, void *, u32, u64, u32 *) W(fd_readdir);
extern int path_filestat_get(u32, u32, const char *, u32, void *) W(path_filestat_get);
extern int path_filestat_set_times(u32, u32, const char *, u32, u64, u64, u32) W(path_filestat_set_times);
extern int path_create_directory(u32, const char *, u32) W(path_create_directory);
extern int path_remove_directory(u32, const char *, u32) W(path_remove_directory);
extern int path_unlink_file(u32, const char *, u32) W(path_unlink_file);
extern int path_rename(u32, const char *, u32, u32, const char *, u32) W(path_rename);
extern int path_link(u32, u32, const char *, u32, u32, const char *, u32) W(path_link);
extern int path_symlink(const char *, u32, u32, const char *, u32) W(path_symlink);
extern int path_readlink(u32, const char *, u32, char *, u32, u32 *) W(path_readlink);
extern int poll_oneoff(const void *, void *, u32, u32 *) W(poll_oneoff);
extern int sock_shutdown(u32, u32) W(sock_shutdown);

static int number;
static void check(int good) { number++; if (!good) proc_exit(number); }
static void is(int have, int want) { check(have == want); }
#define S(text) text, sizeof text - 1
/* ALL but what writes is what a directory can be opened with. */
enum { ALL = 0x1fffffff, FOLDER = ALL & ~(1 << 6 | 1 << 8 | 1 << 22), CREATE = 1, DIRECTORY = 2, EXCLUSIVE = 4, TRUNCATE = 8 };
static u64 stat_[8];
static char bytes[4096];

void _start(void) {
    const u32 dir = 3;
    u32 fd, other, count; u64 at;
    struct { u32 tag, length; } pre;
    is(fd_prestat_get(dir, &pre), 0); is(pre.length, 1);
    is(fd_prestat_dir_name(dir, bytes, 1), 0); is(bytes[0], '/');
    is(fd_prestat_get(4, &pre), 8);
    /* 6: out of the directory in every way */
    is(path_open(dir, 1, S("../x"), CREATE, ALL, 0, 0, &fd), 76);
    is(path_open(dir, 1, S("/etc/passwd"), 0, ALL, 0, 0, &fd), 76);
    is(path_symlink(S("../.."), dir, S("up")), 0);
    is(path_open(dir, 1, S("up"), DIRECTORY, ALL, 0, 0, &fd), 76);
    is(path_open(dir, 1, S("up/x"), CREATE, ALL, 0, 0, &fd), 76);
    is(path_filestat_get(dir, 1, S("up"), stat_), 76);
    is(path_filestat_get(dir, 0, S("up"), stat_), 0); is(stat_[2], 7);
    is(path_create_directory(dir, S("up/x")), 76);
    is(path_rename(dir, S("up"), dir, S("up/x")), 76);
    is(path_readlink(dir, S("up"), bytes, 3, &count), 0); is(count, 3);
    is(path_unlink_file(dir, S("up")), 0);
    is(path_symlink(S("/etc"), dir, S("up")), 76);
    /* 19: write and read */
    is(path_open(dir, 0, S("a"), CREATE | EXCLUSIVE, ALL, ALL, 0, &fd), 0);
    is(path_open(dir, 0, S("a"), CREATE | EXCLUSIVE, ALL, ALL, 0, &other), 20);
    vec two[2] = {{"hello ", 6}, {"world", 5}};
    is(fd_write(fd, two, 2, &count), 0); is(count, 11);
    is(fd_tell(fd, &at), 0); is(at, 11);
    is(fd_seek(fd, -5, 2, &at), 0); is(at, 6);
    is(fd_seek(fd, -50, 1, &at), 28);
    is(fd_seek(fd, 0, 7, &at), 28);
    vec in = {bytes, 4096};
    is(fd_read(fd, &in, 1, &count), 0); is(count, 5); is(bytes[0], 'w');
    is(fd_read(fd, &in, 1, &count), 0); is(count, 0);
    is(fd_pread(fd, &in, 1, 4, &count), 0); is(count, 7);
    is(fd_pwrite(fd, two, 1, 100, &count), 0);
    is(fd_filestat_get(fd, stat_), 0); is(stat_[4], 106); is(stat_[2], 4); is(stat_[3], 1);
    is(fd_allocate(fd, 0, 200), 0); is(fd_allocate(fd, 0, 0), 28);
    is(fd_filestat_get(fd, stat_), 0); is(stat_[4], 200);
    is(fd_filestat_set_size(fd, 11), 0);
    is(fd_filestat_set_times(fd, 1000000007, 2000000009, 5), 0);
    is(fd_filestat_set_times(fd, 0, 0, 3), 28);
    is(path_filestat_get(dir, 1, S("a"), stat_), 0); is(stat_[4], 11);
    check(stat_[5] == 1000000007 && stat_[6] == 2000000009);
    is(path_filestat_set_times(dir, 1, S("a"), 5, 6, 5), 0);
    is(path_filestat_get(dir, 1, S("a"), stat_), 0); check(stat_[5] == 5 && stat_[6] == 6);
    is(fd_advise(fd, 0, 10, 3), 0); is(fd_advise(fd, 0, 10, 6), 28);
    is(fd_sync(fd), 0);
    /* 63: append, and rights */
    is(fd_fdstat_set_flags(fd, 1), 0);
    is(fd_seek(fd, 0, 0, &at), 0);
    is(fd_write(fd, two, 1, &count), 0);
    is(fd_filestat_get(fd, stat_), 0); is(stat_[4], 17);
    is(fd_fdstat_get(fd, bytes), 0); is(bytes[0], 4); is(bytes[2], 1);
    is(fd_fdstat_set_flags(fd, 2), 58);
    is(fd_fdstat_set_rights(fd, 2, 0), 0);
    is(fd_write(fd, two, 1, &count), 8);
    is(fd_fdstat_set_rights(fd, ALL, 0), 76);
    is(fd_close(fd), 0); is(fd_close(fd), 8);
    is(path_open(dir, 0, S("a"), 0, 2, 0, 0, &fd), 0);
    is(fd_write(fd, two, 1, &count), 8);
    is(fd_close(fd), 0);
    is(path_open(dir, 0, S("a"), TRUNCATE, 64, 0, 0, &fd), 0);
    is(fd_read(fd, &in, 1, &count), 8);
    is(fd_filestat_get(fd, stat_), 0); is(stat_[4], 0);
    /* 83: numbers */
    is(path_open(dir, 0, S("a"), 0, 2, 0, 0, &other), 0);
    is(fd_renumber(other, fd), 0); is(fd_close(other), 8);
    is(fd_renumber(fd, 77), 8); is(fd_close(fd), 0);
    /* 88: directories */
    is(path_create_directory(dir, S("d")), 0); is(path_create_directory(dir, S("d/e/")), 0);
    is(path_create_directory(dir, S("d")), 20);
    is(path_remove_directory(dir, S("d")), 55); is(path_remove_directory(dir, S("a")), 54);
    is(path_unlink_file(dir, S("d")), 31); is(path_unlink_file(dir, S("a/")), 54);
    is(path_open(dir, 0, S("a"), DIRECTORY, ALL, ALL, 0, &fd), 54);
    is(path_open(dir, 0, S("d"), DIRECTORY, ALL, ALL, 0, &fd), 31); is(path_open(dir, 0, S("d"), 0, ALL, ALL, 0, &fd), 31);
    is(path_open(dir, 0, S("."), DIRECTORY, 2 | 64, 0, 0, &fd), 31);
    is(path_open(dir, 0, S("."), DIRECTORY, 2, 0, 0, &other), 0); is(fd_close(other), 0);
    is(path_open(dir, 0, S("d"), DIRECTORY, FOLDER, ALL, 0, &fd), 0);
    is(fd_read(fd, &in, 1, &count), 8); is(fd_seek(fd, 0, 0, &at), 8);
    is(path_open(fd, 0, S("../a"), 0, 2, 0, 0, &other), 76);
    is(path_open(fd, 0, S("f"), CREATE, ALL, 0, 0, &other), 0); is(fd_close(other), 0);
    is(fd_readdir(fd, bytes, 4096, 0, &count), 0); is(count, 4 * 24 + 1 + 2 + 1 + 1);
    is(bytes[16], 1); is(bytes[20], 3); is(bytes[24], '.');
    is(fd_readdir(fd, bytes, 30, 1, &count), 0); is(count, 30); is(bytes[25], '.');
    is(fd_readdir(fd, bytes, 4096, 4, &count), 0); is(count, 0);
    is(fd_readdir(0, bytes, 30, 0, &count), 54);
    /* 116: links and names */
    is(path_link(dir, 0, S("a"), fd, S("g")), 0); is(path_link(dir, 1, S("a"), fd, S("h")), 28);
    is(path_filestat_get(fd, 0, S("g"), stat_), 0); is(stat_[3], 2);
    is(path_rename(fd, S("g"), dir, S("b")), 0); is(path_filestat_get(fd, 0, S("g"), stat_), 44);
    is(path_symlink(S("a"), dir, S("s")), 0);
    is(path_open(dir, 0, S("s"), 0, 2, 0, 0, &other), 32);
    is(path_open(dir, 1, S("s"), 0, 2, 0, 0, &other), 0); is(fd_close(other), 0);
    is(path_symlink(S("t"), dir, S("t")), 0);
    is(path_open(dir, 1, S("t"), 0, 2, 0, 0, &other), 32);
    is(path_readlink(dir, S("a"), bytes, 10, &count), 28);
    is(path_unlink_file(dir, S("t")), 0); is(path_unlink_file(dir, S("s")), 0);
    is(path_unlink_file(dir, S("b")), 0); is(path_unlink_file(dir, S("a")), 0);
    is(path_unlink_file(dir, S("")), 44); is(path_unlink_file(dir, "x\0y", 3), 28);
    is(path_unlink_file(dir, "\xff", 1), 25);
    is(path_unlink_file(dir, (char *)0xfffffff0, 100), 21);
    is(path_unlink_file(dir, S("d/f")), 0); is(path_remove_directory(dir, S("d/e")), 0);
    is(fd_close(fd), 0); is(path_remove_directory(dir, S("d/")), 0);
    /* waiting, and what is no socket */
    struct { u64 user, tag, id, timeout, precision, flags; } wait[2] = {{7, 0, 1, 1000, 0, 0}, {8, 2, 1, 0, 0, 0}};
    struct { u64 user; u16 error; u16 type; u32 pad; u64 bytes, flags; } event[2];
    is(poll_oneoff(wait, event, 1, &count), 0); is(count, 1); is(event[0].user, 7); is(event[0].type, 0);
    is(poll_oneoff(wait, event, 2, &count), 0); is(count, 1); is(event[0].user, 8); is(event[0].type, 2);
    is(poll_oneoff(wait, event, 0, &count), 28);
    is(sock_shutdown(1, 0), 57); is(sock_shutdown(77, 0), 8);
    proc_exit(0);
}
