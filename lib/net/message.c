/* SPDX-License-Identifier: BSD-3-Clause */
/* One-line messages, and a short memory of what DPDK logged. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <rte_log.h>

#include "net/message.h"
#include "net/net.h"

const char *net_message(const char *format, ...)
{
	static char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return text;
}

const char *net_port_message(const struct net_port_config *port, unsigned int line,
			     const char *what)
{
	if (port->file)
		return net_message("%s:%u: [port %s] device = %s: %s", port->file,
				   line ? line : port->device_line, port->name, port->device, what);
	return net_message("port %s: device %s: %s", port->name, port->device, what);
}

void net_warn(const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "warning: %s\n", text);
}

/* --- DPDK's log -------------------------------------------------------------------- */

#define LOG_LINES 32u
#define LOG_WIDTH 200u

static struct {
	char line[LOG_LINES][LOG_WIDTH];
	unsigned int lines; /* ever kept; the last LOG_LINES are here */
	bool verbose;
	FILE *stream;
} kept;

static void keep(const char *text, size_t length)
{
	char *line = kept.line[kept.lines % LOG_LINES];

	if (length == 0)
		return;
	snprintf(line, LOG_WIDTH, "%.*s", (int)length, text);
	kept.lines++;
}

static ssize_t log_write(void *cookie, const char *text, size_t size)
{
	size_t done = 0;

	(void)cookie;
	if (kept.verbose)
		fwrite(text, 1, size, stderr);
	while (done < size) {
		const char *end = memchr(text + done, '\n', size - done);
		size_t length = end ? (size_t)(end - text) - done : size - done;

		keep(text + done, length);
		done += length + 1;
	}
	return (ssize_t)size;
}

void net_log_capture(bool verbose)
{
	cookie_io_functions_t functions = { .write = log_write };

	kept.verbose = verbose;
	if (!kept.stream) {
		kept.stream = fopencookie(NULL, "w", functions);
		if (!kept.stream)
			return;
		setvbuf(kept.stream, NULL, _IOLBF, 0);
	}
	rte_openlog_stream(kept.stream);
}

void net_log_release(void)
{
	rte_openlog_stream(NULL);
}

#define FAILED_TO_INITIALIZE "failed to initialize "

static unsigned int oldest(void)
{
	return kept.lines > LOG_LINES ? kept.lines - LOG_LINES : 0;
}

static const char *line_at(unsigned int number)
{
	return kept.line[number % LOG_LINES];
}

unsigned int net_log_mark(void)
{
	return kept.lines;
}

const char *net_log_first(unsigned int mark)
{
	unsigned int first = mark > oldest() ? mark : oldest();

	return first < kept.lines ? line_at(first) : NULL;
}

const char *net_log_mentions(const char *word)
{
	for (unsigned int i = oldest(); i < kept.lines; i++)
		if (strstr(line_at(i), word))
			return line_at(i);
	return NULL;
}

const char *net_log_device(const char *device)
{
	const char *cause = NULL;

	for (unsigned int i = oldest(); i < kept.lines; i++) {
		const char *failed = strstr(line_at(i), FAILED_TO_INITIALIZE);

		if (!failed) {
			cause = cause ? cause : line_at(i);
			continue;
		}
		failed += sizeof(FAILED_TO_INITIALIZE) - 1;
		if (strncmp(failed, device, strlen(device)) == 0)
			return cause;
		cause = NULL;
	}
	return NULL;
}
