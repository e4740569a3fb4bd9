/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that is a client of two daemons at once and so plays both ends of a link. Scenes are
 * functions; one that meets what must not be says where and ends the process.
 */
#ifndef INTEGRATION_PLAY_H
#define INTEGRATION_PLAY_H

#include <ndk/ndk.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define PATIENCE  40000 /* ms until something that must happen counts as not happening */
#define MEMORY    (4u << 20)
#define CQ_DEPTH  256u
#define QP_DEPTH  64u
#define ANY_ERROR STATUS_UNSUCCESSFUL /* for expect_status(): whatever is not a success */

#define DEMAND(condition, ...)                                                          \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
			fprintf(stderr, __VA_ARGS__);                                   \
			fputc('\n', stderr);                                            \
			exit(EXIT_FAILURE);                                             \
		}                                                                       \
	} while (0)

/* A client's usual objects at one daemon. */
struct end {
	const char *name;
	const char *socket;              /* the daemon's */
	struct sockaddr_storage address; /* the daemon's */
	NDK_ADAPTER *adapter;
	NDK_PD *pd;
	NDK_CQ *cq;
	NDK_MR *mr; /* all of `bytes`, every right */
	MDL *mdl;
	uint8_t *bytes;
	bool served; /* its data plane is in this process, and runs in */
	pthread_t server;
};

struct scene {
	const char *name;
	void (*play)(struct end *a, struct end *b);
};

extern const struct scene srq_scenes[], datagram_scenes[], uc_scenes[], service_scenes[],
	fast_scenes[], connect_scenes[], window_scenes[], qp_scenes[], cq_scenes[], mw_scenes[],
	connector_scenes[], life_scenes[];

/* --- statuses and completions ------------------------------------------------------------- */

void expect_status(NTSTATUS got, NTSTATUS wanted, const char *what);
#define SUCCEEDS(call) expect_status((call), STATUS_SUCCESS, #call)
/* The next completion of the end, which must come and have this status. */
NDK_RESULT_EX result(struct end *end, NTSTATUS status, const char *what);
NDK_RESULT_EX any_result(struct end *end, const char *what);
/* None comes for a while. */
void no_result(struct end *end, const char *what);
/* The end's daemon has done what was asked of it so far, also what it does not answer. */
void caught_up(struct end *end);
/* Waits while *condition is false; drives both ends. */
void until(struct end *a, struct end *b, const bool *condition, const char *what);

/* --- objects ------------------------------------------------------------------------------ */

NDK_QP *create_qp(struct end *end, PVOID context);
NDK_SRQ *create_srq(struct end *end, ULONG depth, ULONG threshold,
		    NDK_FN_SRQ_NOTIFICATION_CALLBACK notification, PVOID context);
NDK_QP *create_qp_with_srq(struct end *end, NDK_SRQ *srq, PVOID context);
NDK_QP *create_qp_of_type(struct end *end, ORIEL_QP_TYPE type, NDK_SRQ *srq, PVOID context);
NTSTATUS connect_qp(struct end *end, NDK_QP *qp, const ORIEL_QP_CONNECTION *connection);
bool parse_address(const char *text, struct sockaddr_storage *address);
/* Both by number, with first PSNs that differ. */
void connect_qps(struct end *a, NDK_QP *left, struct end *b, NDK_QP *right);
void close_object(struct end *end, NDK_OBJECT_HEADER *object);
NDK_SGE sge_at(struct end *end, uint64_t offset, ULONG length);

#endif
