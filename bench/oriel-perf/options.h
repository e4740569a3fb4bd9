/* SPDX-License-Identifier: BSD-3-Clause */
/* What the user asked for: every flag of the command line in one structure. */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include <ndk/ndk.h>
#include <netinet/in.h>
#include <stdbool.h>

enum perf_operation {
	PERF_WRITE,
	PERF_READ,
	PERF_SEND,
	PERF_FETCH_ADD,
	PERF_COMPARE_SWAP,
	PERF_MIXED,   /* writes and reads in a chosen share */
	PERF_BIND,    /* windows of our own, bound and invalidated */
	PERF_WINDOW,  /* new windows at an export, by request */
	PERF_CONNECT, /* connections made and ended */
};

enum perf_mode {
	PERF_BANDWIDTH, /* as many requests under way as the queues hold */
	PERF_LATENCY,   /* one request (or message and answer) at a time */
};

/* The order in which messages go over the places in the remote memory. */
enum perf_pattern { PERF_SEQUENTIAL, PERF_RANDOM, PERF_ZIPF, PERF_FIXED };

enum perf_unit { PERF_GIGABITS, PERF_MEGABYTES, PERF_PACKETS };

struct perf_options {
	enum perf_operation operation;
	enum perf_mode mode;
	/* the other side: one of the three */
	struct sockaddr_storage export; /* listen address of an oriel-target, family 0: none */
	const char *host;               /* a perftest server; NULL: none */
	bool server;                    /* wait for a perftest client */
	bool rdma_cm;                   /* -R: perftest's exchange over rdma_cm */
	uint16_t port;                  /* -p: of perftest's exchange */
	/* our side */
	struct sockaddr_storage local; /* family 0: the daemon's first that fits */
	unsigned int gid_index;        /* -x: of the daemon's addresses, with gid_chosen */
	bool gid_chosen;
	bool ipv6; /* with perftest: our first IPv6 address instead of the first IPv4 one */
	const char *socket; /* -d: the daemon's; NULL: $ORIEL_SOCKET, or the usual place */
	const char *name;   /* of the export; NULL: the address's first */
	ORIEL_QP_TYPE type;
	ULONG mtu;                    /* -m: bytes, 0: the port's */
	UCHAR timeout, traffic_class; /* -u, --tclass */
	ULONG reads; /* -o: READs and atomics of a queue pair under way on the link */
	/* load */
	uint32_t size;       /* bytes of a message */
	uint64_t iterations; /* of each queue pair; 0: by time */
	double seconds;
	double warm_up; /* seconds before the measurement */
	uint32_t queue_pairs;
	ULONG depth, receive_depth;
	ULONG post_list;  /* requests for each doorbell; 0: as many as there is room for */
	ULONG moderation; /* one completion for so many requests */
	ULONG inline_size;
	bool compare_swap; /* of `atomic` */
	bool bidirectional;
	bool all_sizes;
	bool summary;
	bool poll; /* never sleep while waiting for completions */
	double rate;
	enum perf_unit rate_unit;
	uint32_t burst;
	unsigned int read_share; /* percent of PERF_MIXED */
	enum perf_pattern pattern;
	double skew;         /* of PERF_ZIPF */
	uint32_t windows;    /* of PERF_BIND; connections at once of PERF_CONNECT */
	uint64_t per_window; /* messages until a new window is asked for; 0: never */
	bool verify;
	/* output */
	bool gigabits;
	bool times; /* of each message of a rate run, too */
	bool histogram;
	bool json, csv;
	const char *json_file; /* NULL: standard output */
	bool quiet;            /* no live line */
};

/* 0: go on; 1: help or version was printed; -EINVAL: a message was printed. */
int options_parse(int argc, char **argv, struct perf_options *options);
const char *options_operation(enum perf_operation operation);
bool options_is_atomic(const struct perf_options *options);

#endif
