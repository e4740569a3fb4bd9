/* SPDX-License-Identifier: BSD-3-Clause */
/* An open adapter on a fake daemon, and the usual objects in it. */
#ifndef TEST_NDK_RIG_H
#define TEST_NDK_RIG_H

#include "fake.h"

/* What callbacks have told. */
struct outcome {
	unsigned int calls;
	NTSTATUS status;
	NDK_OBJECT_HEADER *object;
	struct rig *rig;
};

struct rig {
	struct fake fake;
	NDK_ADAPTER *adapter;
	NDK_PD *pd;
	NDK_CQ *cq;
	NDK_QP *qp;
	NDK_MR *mr;
	NDK_MW *mw;
	MDL *mdl;
	NDK_SGE sge; /* of the region */
	/* Of the CQ. */
	unsigned int notifications;
	NTSTATUS notified;
	bool closed;
	bool rearm; /* the callback drains the CQ and arms it again */
};

void on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object);
void on_done(PVOID context, NTSTATUS status);
void on_closed(PVOID context);

/* Steps daemon and library until neither has anything to do. */
void rig_run(struct rig *rig);
void rig_open(struct rig *rig);
/* PD, CQ of 64, QP of 4 sends and 4 receives with 2 SGEs each and 64 bytes inline. */
void rig_queues(struct rig *rig);
/* The same, connected by number. */
void rig_connected(struct rig *rig);
/* And a registered region of a page with these rights, and a window. */
void rig_memory(struct rig *rig, ULONG access);
void rig_close(struct rig *rig);

NDK_MW *rig_create_mw(struct rig *rig, NDK_PD *pd);
NDK_PD *rig_create_pd(struct rig *rig);
NDK_CQ *rig_create_cq(struct rig *rig, ULONG depth);
NDK_QP *rig_create_qp(struct rig *rig, PVOID context);
NDK_LISTENER *rig_listen(struct rig *rig, NDK_FN_CONNECT_EVENT_CALLBACK event, PVOID context);

#endif
