/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rules in a device (rte_flow) that bring the frames of a queue pair to the worker at which it
 * lives, for those that do not go to where their frames land; design.md, section 10.
 *
 * A worker wishes, the control thread makes: a driver may sleep in it.
 */
#ifndef NET_FLOW_RULE_H
#define NET_FLOW_RULE_H

#include <stdbool.h>
#include <stdint.h>

struct net;
struct net_port_status;
struct rte_flow;
struct worker;
struct worker_command;

#define FLOW_RULES  1024u /* in one port, at the most */
#define FLOW_WISHES 64u   /* of one worker that wait; more are lost, and come again */

/* The frames of this queue pair's peer should come to the worker that says so. */
struct flow_wish {
	uint32_t qp;
	uint32_t number;      /* QPN: the index may be another's when control reads it */
	uint16_t source_port; /* UDP, of the peer */
	uint8_t port;         /* index of ours */
	uint8_t queue;        /* the worker's */
};

struct flow_key {
	uint8_t remote_gid[16], local_gid[16];
	uint16_t source_port;
};

/* Queue pairs whose peers' frames look alike share one. */
struct flow_rule {
	struct rte_flow *handle; /* NULL: free */
	struct flow_key flow;
	uint16_t queue;
	uint32_t users;
};

/* Of a port. All control's, but for the first, which stays as it was when workers began. */
struct flow_rules {
	struct flow_rule *rule;      /* NULL: the device takes none */
	bool takes4, takes6;         /* by family of the addresses */
	uint64_t quiet_until, pause; /* ns: the device refused one, and is let alone for a time */
	bool told;                   /* of a rule that the device keeps */
	uint32_t count;              /* atomic, as are the next: in place */
	uint64_t made, refused;
};

/* What control knows of a queue pair. */
struct flow_user {
	uint16_t rule; /* plus 1; 0: none */
	uint8_t port;
	bool ended; /* nothing is made for it any more */
};

/* Asks a started device whether it takes such rules; before workers run. 0 or -ENOMEM. */
int flow_rule_probe(struct net *net, uint32_t port);
/* Before the device is stopped, when no worker runs any more. */
void flow_rule_close(struct net *net, uint32_t port);

/* In the queue pair's home. Never waits; what the device cannot do is not asked for. */
void flow_rule_wish(struct worker *worker, uint32_t qp, uint32_t port, uint16_t source_port);

/* In the control thread: the oldest wish of each worker; returns how many there were. */
unsigned int flow_rule_poll(struct net *net);
/* The same thread sends this to a worker: a queue pair begins, ends, or goes elsewhere. */
void flow_rule_command(struct net *net, const struct worker_command *command);
/* Any thread. */
void flow_rule_status(const struct net *net, uint32_t port, struct net_port_status *status);

#endif
