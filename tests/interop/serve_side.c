/* SPDX-License-Identifier: BSD-3-Clause */
/* A stock server's second queue pair: RC, UC or UD, connected by number and not by rdma_cm. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "server.h"

static int to_ready(struct server *server, const struct exchange_command *c, const char **what);

int side_open(struct server *server, const struct exchange_command *c, const char **what)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };
	struct endpoint *side = &server->side;
	struct ibv_qp_init_attr init = {
		.qp_type = types[c->kind % 3],
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = EXCHANGE_SLOTS,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	int error;

	side_close(server);
	*what = "ibv_create_cq";
	side->cq = ibv_create_cq(server->id->verbs, 64, NULL, server->completions, 0);
	if (!side->cq)
		return -errno;
	init.send_cq = side->cq;
	init.recv_cq = side->cq;
	*what = "ibv_create_qp";
	side->qp = ibv_create_qp(server->pd, &init);
	if (!side->qp)
		return -errno;
	side->first_slot = SERVER_SIDE;
	side->header = c->kind == SERVICE_UD ? EXCHANGE_HEADER : 0;
	side->remote_qpn = c->token;
	error = to_ready(server, c, what);
	*what = error ? *what : "ibv_post_recv";
	for (unsigned int i = 0; !error && i < EXCHANGE_SLOTS; i++)
		error = server_post_receive(server, side);
	return error;
}

void side_close(struct server *server)
{
	struct endpoint *side = &server->side;

	if (side->qp)
		ibv_destroy_qp(side->qp);
	if (side->ah)
		ibv_destroy_ah(side->ah);
	if (side->cq)
		ibv_destroy_cq(side->cq);
	*side = (struct endpoint){ 0 };
}

static void gid_of(const struct sockaddr *address, union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (address->sa_family == AF_INET6) {
		memcpy(gid, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
		return;
	}
	memcpy(gid, mapped, sizeof(mapped));
	memcpy(gid->raw + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
}

/* From our address of the connection to the client's. */
static int fill_path(const struct server *server, struct ibv_ah_attr *ah)
{
	union ibv_gid ours, theirs, entry;

	gid_of(rdma_get_local_addr(server->id), &ours);
	gid_of(rdma_get_peer_addr(server->id), &theirs);
	*ah = (struct ibv_ah_attr){ .is_global = 1,
				    .port_num = server->id->port_num,
				    .grh = { .dgid = theirs, .hop_limit = 64 } };
	for (int i = 0; i < 64; i++) {
		if (ibv_query_gid(server->id->verbs, server->id->port_num, i, &entry) ||
		    memcmp(&entry, &ours, sizeof(ours)) != 0)
			continue;
		ah->grh.sgid_index = (uint8_t)i;
		return 0;
	}
	return -ENOENT;
}

static enum ibv_mtu mtu_code(uint64_t bytes)
{
	return bytes >= 4096 ? IBV_MTU_4096 : bytes >= 2048 ? IBV_MTU_2048 : IBV_MTU_1024;
}

/* Each service wants other attributes for the same steps. */
static int to_ready(struct server *server, const struct exchange_command *c, const char **what)
{
	const bool rc = c->kind == SERVICE_RC, ud = c->kind == SERVICE_UD;
	struct ibv_qp *qp = server->side.qp;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = server->id->port_num,
		.qkey = c->immediate,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = mtu_code(c->length),
		.dest_qp_num = c->token,
		.rq_psn = EXCHANGE_CLIENT_PSN,
		.sq_psn = EXCHANGE_SERVER_PSN,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.timeout = 18,
		.retry_cnt = 6,
		.rnr_retry = 7,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	int error;

	*what = "address";
	error = fill_path(server, &attr.ah_attr);
	if (error)
		return error;
	*what = "INIT";
	if (ibv_modify_qp(qp, &attr, mask | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)))
		return -errno;
	attr.qp_state = IBV_QPS_RTR;
	mask = IBV_QP_STATE;
	if (!ud)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (rc)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	*what = "RTR";
	if (ibv_modify_qp(qp, &attr, mask))
		return -errno;
	attr.qp_state = IBV_QPS_RTS;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (rc)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	*what = "RTS";
	if (ibv_modify_qp(qp, &attr, mask))
		return -errno;
	if (!ud)
		return 0;
	*what = "ibv_create_ah";
	server->side.ah = ibv_create_ah(server->pd, &attr.ah_attr);
	return server->side.ah ? 0 : -errno;
}

bool side_header_right(const struct server *server, const uint8_t *header)
{
	const struct sockaddr *ours = rdma_get_local_addr(server->id);
	union ibv_gid from, to;

	gid_of(rdma_get_peer_addr(server->id), &from);
	gid_of(ours, &to);
	if (ours->sa_family == AF_INET6)
		return header[0] >> 4 == 6 && !memcmp(header + 8, &from, 16) &&
		       !memcmp(header + 24, &to, 16);
	return header[20] == 0x45 && !memcmp(header + 32, from.raw + 12, 4) &&
	       !memcmp(header + 36, to.raw + 12, 4);
}
