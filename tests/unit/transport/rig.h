/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ends of a network in one process: each a whole daemon's worth of arena, memory and
 * transports with a client that posts and polls; frames pass by hand or through a link
 * that a test may bend. And a raw peer that speaks hand-made frames.
 */
#ifndef TEST_TRANSPORT_RIG_H
#define TEST_TRANSPORT_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/memory.h"
#include "shm/layout.h"
#include "shm/status.h"
#include "transport/state.h"
#include "transport/transport.h"
#include "wire/build.h"
#include "wire/packet.h"

#define RIG_MEMORY  (4u << 20)        /* bytes of client memory of an end */
#define RIG_BASE    0x7f0000000000ull /* where peers see it */
#define RIG_QPS     8u
#define RIG_EVENTS  64u
#define RIG_WORKERS 3u
#define RIG_FRAME   8192u
#define RIG_SESSION 1u

struct rig_queue { /* frames on their way */
	struct pktbuf *frame[4096];
	uint32_t head, tail;
};

/* The client's side of a queue pair, with a CQ of its own for both queues. */
struct rig_qp {
	uint32_t index;
	uint32_t number;
	uint32_t cq;
	struct shm_qp *memory;
	struct shm_cq *cq_memory;
	uint32_t cq_head[RIG_WORKERS]; /* of each worker's ring */
	struct qp_config config;
};

struct end {
	struct arena arena;
	struct memory *memory;
	struct transport_shared *shared;
	struct transport_sizes sizes;
	struct transport *worker[RIG_WORKERS];
	unsigned int workers;
	struct shm_session *session;
	uint8_t *bytes; /* client memory */
	int memfd;
	uint32_t segment, pd, region, window[4];
	uint32_t local_token, remote_token;
	uint32_t tokens[32], next_token;
	struct rig_qp qp[RIG_QPS];
	uint32_t qps;
	struct rig_queue out;
	struct transport_event event[RIG_EVENTS];
	uint32_t events;
	uint32_t notified;
	uint32_t room;    /* frames that get() still gives */
	uint8_t stuck;    /* last byte of the address of a port that takes nothing; 0: none */
	uint32_t buffers; /* outside the pool */
	uint8_t gid[16];
	uint8_t mac[6];
};

enum rig_fate { RIG_PASS, RIG_DOUBLE, RIG_HOLD };
#define RIG_HELD 8u

struct rig {
	struct end a, b;
	uint64_t now;
	/* Whether frame number `n` from a (or b) is lost. */
	bool (*lose)(struct rig *rig, bool from_a, uint32_t n, const struct wire_view *view);
	/* What else happens to it. A frame that is held arrives some frames later. */
	enum rig_fate (*bend)(struct rig *rig, bool from_a);
	struct pktbuf *held[2][RIG_HELD];
	uint32_t held_count[2];
	uint32_t sent_a, sent_b; /* frames so far */
	uint32_t lost;
	void *context;
};

void end_create(struct end *end, unsigned int workers, uint8_t address);
void end_destroy(struct end *end);
/* The same in two parts, for workers whose transports are somebody else's. */
void end_create_tables(struct end *end, unsigned int workers, uint8_t address);
void end_destroy_tables(struct end *end);
struct rig_qp *end_open_qp(struct end *end, uint32_t worker, uint32_t depth);
struct rig_qp *end_open_qp_config(struct end *end, struct qp_config *config, uint32_t cq_depth);
/* From its home to another worker, as lib/net does it. */
void end_move_qp(struct end *end, struct rig_qp *qp, unsigned int to, uint64_t now);
/* Its home. */
struct transport *end_home(const struct end *end, const struct rig_qp *qp);
void end_close_qp(struct end *end, struct rig_qp *qp, uint64_t now);
/* The process dies and another one adopts its arena and segments. */
void end_restart(struct end *end, uint64_t now);
void end_drain(struct end *end); /* frees what lies in `out` */
/* A copy of a frame, to the worker that owns its queue pair. */
void end_deliver(struct end *end, const uint8_t *frame, uint32_t length, uint64_t now);
/* Takes the next frame out; its length, 0: there is none. */
uint32_t end_next_frame(struct end *end, uint8_t frame[RIG_FRAME]);
unsigned int end_poll(struct end *end, uint64_t now);
uint32_t end_count_events(const struct end *end, uint32_t type);
const struct transport_event *end_find_event(const struct end *end, uint32_t type);
uint64_t end_verdicts(struct end *end, uint32_t verdict);
/* A counter of struct transport_stats, by its offset, summed over the workers. */
uint64_t end_counter(const struct end *end, size_t offset);
uint32_t end_token(struct end *end); /* one from the stock */

/* What connections begin as: MTU 1024, timeout code 14, retry 7, all rights. */
struct qp_connection rig_connection(void);
/* Connects with another end's queue pair, or with a raw peer. */
void rig_join(struct rig *rig, struct rig_qp *a, struct rig_qp *b, struct qp_connection ca,
	      struct qp_connection cb);

void rig_create(struct rig *rig); /* of one worker each */
void rig_create_workers(struct rig *rig, unsigned int workers);
/* Frees both, after checking that every buffer came back. */
void rig_destroy(struct rig *rig);
/* One poll of each end and one delivery of what lies there; how much was done. */
unsigned int rig_turn(struct rig *rig);
/* Polls and passes frames until both ends are idle; time stands still. */
void rig_settle(struct rig *rig);
/* The same, jumping to the next deadline until nothing is left or `until` is reached. */
void rig_run(struct rig *rig, uint64_t until);
void rig_connect(struct rig *rig, struct rig_qp **qa, struct rig_qp **qb);

/* --- client --------------------------------------------------------------------------- */

void post_send(struct end *end, struct rig_qp *qp, struct shm_sqe sqe, const struct shm_sge *sge,
	       uint32_t nsge);
void post_receive(struct end *end, struct rig_qp *qp, uint64_t context, const struct shm_sge *sge,
		  uint32_t nsge);
/* One region of the end's memory as SGE. */
struct shm_sge sge_at(const struct end *end, uint64_t offset, uint32_t length);
bool take_cqe(struct rig_qp *qp, struct shm_cqe *cqe);
/* Asserts that the next entry is there and has this context and status. */
struct shm_cqe expect_cqe(struct rig_qp *qp, uint64_t context, int32_t status);
void expect_no_cqe(struct rig_qp *qp);
void fill(uint8_t *bytes, uint32_t length, uint32_t seed);

/* --- raw peer ------------------------------------------------------------------------- */

struct raw {
	struct end end;
	struct rig_qp *qp;
	struct frame_template template;
	uint64_t now;
	struct pktbuf *last; /* frame of the last raw_receive() */
};

#define RAW_QPN      0x123456u
#define RAW_PSN      0x500u
#define RAW_SEND_PSN 0x900u /* first PSN of the end's own requests */

struct raw_packet {
	uint8_t opcode;
	bool ack_request;
	bool solicited;
	bool fecn;
	uint32_t psn;
	uint64_t address;
	uint32_t token;
	uint32_t length; /* RETH */
	uint64_t swap, compare;
	uint32_t immediate;
	uint8_t syndrome;
	uint32_t msn;
	uint64_t original;
	uint32_t qkey, source_qpn;
	uint16_t pkey; /* 0: the default */
	const void *payload;
	uint32_t payload_length;
};

void raw_create(struct raw *raw, struct qp_connection connection);
void raw_create_type(struct raw *raw, uint32_t type, struct qp_connection connection);
void raw_create_at(struct raw *raw, struct qp_connection connection, uint32_t psn);
void raw_open(struct raw *raw, unsigned int workers, struct qp_connection connection, uint32_t psn);
void raw_destroy(struct raw *raw);
/* Sends one frame to the end's worker; does not poll. */
void raw_send_only(struct raw *raw, const struct raw_packet *packet);
/* Sends and polls until idle. */
void raw_send(struct raw *raw, const struct raw_packet *packet);
/* Next frame that the end sent: false when there is none. Frees the one before. */
bool raw_receive(struct raw *raw, struct wire_view *view);
void raw_expect_none(struct raw *raw);
void raw_expect_ack(struct raw *raw, uint32_t psn, uint32_t msn);
void raw_expect_nak(struct raw *raw, uint32_t psn, uint8_t syndrome);

#define RAW_SEND(raw_, ...) raw_send((raw_), &(struct raw_packet){ __VA_ARGS__ })

#endif
