/* SPDX-License-Identifier: BSD-3-Clause */
/* One line for the administrator, whose process ever it is. */
#include <stdarg.h>
#include <stdio.h>

#include "control/control_private.h"

void control_say(const struct control *control, const char *format, ...)
{
	va_list arguments;

	if (!control->config.name)
		return;
	flockfile(stderr);
	fprintf(stderr, "%s: ", control->config.name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	funlockfile(stderr);
}
