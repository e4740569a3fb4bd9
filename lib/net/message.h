/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages for the administrator, and DPDK's own words kept for them. */
#ifndef NET_MESSAGE_H
#define NET_MESSAGE_H

#include <stdbool.h>

struct net_port_config;

/* Formats into the one static buffer that net's messages live in. Control thread only. */
__attribute__((format(printf, 1, 2))) const char *net_message(const char *format, ...);
/* What is wrong with a port, and where that stands. line: of another key than its device, or 0. */
const char *net_port_message(const struct net_port_config *port, unsigned int line,
			     const char *what);
/* One line on stderr: something that is not as it should be but works. */
__attribute__((format(printf, 1, 2))) void net_warn(const char *format, ...);

/*
 * While on, what DPDK logs is kept instead of printed (verbose: printed too), so that a
 * failure can be reported in one line with the driver's own reason.
 */
void net_log_capture(bool verbose);
void net_log_release(void);

/* The lines so far; and the first of those since, which is the cause of what follows; or NULL. */
unsigned int net_log_mark(void);
const char *net_log_first(unsigned int mark);
/* The oldest line with `word`, or NULL. */
const char *net_log_mentions(const char *word);
/* What was said before the line that EAL ends its try at a virtual device with, or NULL. */
const char *net_log_device(const char *device);

#endif
