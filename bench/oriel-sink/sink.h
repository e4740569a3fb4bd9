/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oriel-sink: what oriel-flood sends to. Many queue pairs, connected by number, and many windows on
 * one region; a table of both for the generator; receives posted anew; windows bound and
 * invalidated as fast as asked.
 */
#ifndef ORIEL_SINK_SINK_H
#define ORIEL_SINK_SINK_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

#include <ndk/ndk.h>

#define SINK_CHURN_DEPTH                                                         \
	32u /* windows beside those of the table, bound and invalidated in turns \
	     */
#define SINK_PSN_MASK 0xffffffu

struct sink_options {
	struct sockaddr_storage peer;
	const char *table;
	uint32_t qps, windows, path_mtu, receive;
	uint64_t size, memory;
	double seconds;
	bool churn, progress;
};

struct sink {
	struct sink_options options;
	NDK_ADAPTER *adapter;
	NDK_PD *pd;
	NDK_CQ *cq;
	NDK_MR *mr;
	MDL *mdl;
	uint8_t *memory;
	NDK_QP **qp;
	NDK_MW **mw;
	uint32_t *psn;
	struct sockaddr_storage local;
	uint32_t pending; /* requests of libndk, or work requests */
	NTSTATUS failed;  /* first of them that did */
	uint64_t received, binds, binds_failed;
	FILE *file;     /* the table while it is not complete, and */
	char part[512]; /* its name meanwhile; empty: not begun */
	uint32_t churn_next, churn_out;
};

extern volatile sig_atomic_t sink_stop;

/* Says what failed, unless somebody wants an end; false. */
bool sink_complain(const char *what, NTSTATUS status);

/* options.c: false after a message. --help and --version end the program. */
bool sink_options_parse(int argc, char *argv[], struct sink_options *options);

/* objects.c: all false after a message. */
bool sink_open(struct sink *sink); /* everything but the connections */
bool sink_connect(struct sink *sink);

/* windows.c */
uint8_t *sink_window_address(const struct sink *sink, uint32_t index);
bool sink_bind_all(struct sink *sink);
/* One more window bound and invalidated; false: there is no room now. */
bool sink_churn(struct sink *sink);
/* Takes what has completed, and posts receives anew; false: there was nothing. */
bool sink_take_results(struct sink *sink);

#endif
