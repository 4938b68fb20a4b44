/*
 * /init of the Linux peer: brings up what the rows need, runs them, powers the machine off.
 *
 * The kernel hands words of its command line that it does not know to init as environment variables:
 * `peer_mode=icount|time|disk` and, optionally, `peer_rows=NAME,NAME`. Rows go to the second serial line, so that
 * kernel messages on the first cannot tear them. The machine ends through QEMU's isa-debug-exit device: value 0x10
 * (process status 33) after all rows, 0x11 (35) after a failure; anything else QEMU ends with is a crash.
 *
 * Started as an ordinary process it prints rows to standard output: `peer` (all), `peer ROW,ROW`, `peer --reference`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <termios.h>
#include <unistd.h>

#include "peer.h"

enum { EXIT_PORT = 0xf4, EXIT_SUCCEEDED = 0x10, EXIT_FAILED = 0x11 };

static int output = STDOUT_FILENO;
static int is_init;

void peer_print(const char *format, ...)
{
	char line[640];
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(line, sizeof line - 1, format, arguments);
	va_end(arguments);
	if (length > (int)sizeof line - 2)
		length = (int)sizeof line - 2;
	line[length++] = '\n';
	for (int done = 0; done < length;) {
		ssize_t part = write(output, line + done, (size_t)(length - done));

		if (part <= 0)
			return;
		done += (int)part;
	}
}

static void end_machine(unsigned char value)
{
	tcdrain(output);
	usleep(50000); /* the last byte may still stand in the transmitter */
	if (iopl(3) == 0)
		outb(value, EXIT_PORT);
	_exit(value); /* init dies: the kernel panics, which the host sees as a failure */
}

void peer_fail(const char *what, const char *file, int line)
{
	peer_print("error=%s:%d %s (%s)", file, line, what, strerror(errno));
	if (is_init) /* or a child of it: without it nobody can go on */
		end_machine(EXIT_FAILED);
	_exit(1);
}

static void set_up_machine(void)
{
	struct termios line;

	mkdir("/dev", 0755);
	mkdir("/tmp", 01777);
	mkdir("/proc", 0555);
	CHECK(mount("proc", "/proc", "proc", 0, NULL) == 0);
	CHECK(mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) == 0 || errno == EBUSY);
	CHECK(mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0);
	output = open("/dev/ttyS1", O_WRONLY | O_NOCTTY | O_CLOEXEC);
	CHECK(output >= 0);
	CHECK(tcgetattr(output, &line) == 0);
	cfmakeraw(&line);
	CHECK(tcsetattr(output, TCSANOW, &line) == 0);
}

/* Which protections against speculation the kernel was told to leave out: a table of rows must say so. */
static const char *mitigations(void)
{
	char words[1024];
	int file = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t length = read(file, words, sizeof words - 1);

	CHECK(length > 0);
	close(file);
	words[length] = '\0';
	if (strstr(words, "mitigations=off") != NULL && strstr(words, "nopti") != NULL)
		return "mitigations=off nopti";
	return "mitigations=default";
}

static void print_heading(void)
{
	struct utsname name;

	CHECK(uname(&name) == 0);
	peer_print("# linux %s %s", name.release, mitigations());
	peer_print("# build %s, one cpu, %s", name.version,
		   measure_nanoseconds(1000000) != 0 ? "ticks of the host's TSC" : "one tick is one instruction");
}

/* All rows but those of the disk, which have a machine of their own. */
static void run_rows(void)
{
	rows_calls();
	rows_memory();
	rows_ipc();
	rows_tasks();
	rows_oo1();
}

int main(int count, char **arguments)
{
	const char *mode = getenv("peer_mode");

	is_init = getpid() == 1;
	if (!is_init) {
		if (count > 1 && strcmp(arguments[1], "--reference") == 0) {
			oo1_print_reference();
			return 0;
		}
		rows_select(count > 1 ? arguments[1] : NULL);
		measure_calibrate();
		run_rows();
		return 0;
	}
	set_up_machine();
	rows_select(getenv("peer_rows"));
	if (mode == NULL || strcmp(mode, "time") == 0)
		measure_calibrate();
	print_heading();
	if (mode != NULL && strcmp(mode, "disk") == 0)
		rows_disk();
	else
		run_rows();
	peer_print("# done");
	end_machine(EXIT_SUCCEEDED);
	return 1;
}
