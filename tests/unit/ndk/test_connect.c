/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners and connectors: both sides of a connection, private data, limits, its end. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>

#include "rig.h"

#define CONNECTOR 500u

struct peer {
	struct rig rig;
	NDK_LISTENER *listener;
	NDK_CONNECTOR *connector;
	unsigned int arrivals;
	unsigned int disconnects;
	ULONG reason;
	struct outcome outcome;
};

static void on_arrival(PVOID context, NDK_CONNECTOR *connector)
{
	struct peer *peer = context;

	peer->arrivals++;
	peer->connector = connector;
}

static void on_disconnect(PVOID context)
{
	((struct peer *)context)->disconnects++;
}

static void on_disconnect_ex(PVOID context, ULONG reason)
{
	on_disconnect(context);
	((struct peer *)context)->reason = reason;
}

static struct shm_address ipv4(uint8_t last, uint16_t port)
{
	return (struct shm_address){ .gid = { [10] = 0xff, 0xff, 10, 0, 0, last },
				     .port = port,
				     .family = 4 };
}

/* --- passive -------------------------------------------------------------------------------- */

static void request_arrives(struct peer *peer, uint32_t connector)
{
	struct shm_reply event = { .op = SHM_EV_CONNECT_REQUEST };

	event.connection = (struct shm_connection){
		.connector = connector,
		.listener = peer->rig.fake.last[SHM_OP_LISTEN].listen.object,
		.inbound_read_limit = 100,
		.outbound_read_limit = 4,
		.private_length = 56,
		.local = ipv4(1, 7471),
		.remote = ipv4(2, 50000),
		.private_data = "hello",
	};
	fake_send(&peer->rig.fake, &event);
	rig_run(&peer->rig);
}

static void incoming(struct peer *peer)
{
	memset(peer, 0, sizeof(*peer));
	rig_queues(&peer->rig);
	peer->listener = rig_listen(&peer->rig, on_arrival, peer);
	request_arrives(peer, CONNECTOR);
	cr_assert_eq(peer->arrivals, 1);
	cr_assert_not_null(peer->connector);
}

static NTSTATUS accept_it(struct peer *peer)
{
	return NdkAccept(peer->connector, peer->rig.qp, 16, 2, "hi", 3, on_disconnect, peer,
			 on_done, &peer->outcome);
}

static void connected(struct peer *peer)
{
	incoming(peer);
	cr_assert_eq(accept_it(peer), STATUS_PENDING);
	rig_run(&peer->rig);
	cr_assert_eq(peer->outcome.calls, 1);
	cr_assert_eq(peer->outcome.status, STATUS_SUCCESS);
}

static void disconnected(struct peer *peer, uint32_t reason)
{
	const struct shm_reply event = { .op = SHM_EV_DISCONNECTED,
					 .async = { .object = CONNECTOR, .value = reason } };

	fake_send(&peer->rig.fake, &event);
	rig_run(&peer->rig);
}

Test(passive, getters_work_before_the_accept)
{
	struct sockaddr_in address;
	ULONG length = sizeof(address);
	struct peer peer;

	incoming(&peer);
	cr_assert_eq(NdkGetPeerAddress(peer.connector, (PSOCKADDR)&address, &length),
		     STATUS_SUCCESS);
	cr_expect_eq(address.sin_port, htons(50000));
	cr_expect_eq(address.sin_addr.s_addr, htonl(0x0a000002));
	cr_assert_eq(NdkGetLocalAddress(peer.connector, (PSOCKADDR)&address, &length),
		     STATUS_SUCCESS);
	cr_expect_eq(address.sin_port, htons(7471));
	length = 3;
	cr_expect_eq(NdkGetLocalAddress(peer.connector, (PSOCKADDR)&address, &length),
		     STATUS_BUFFER_TOO_SMALL);
	cr_expect_eq(length, sizeof(address));
	rig_close(&peer.rig);
}

Test(passive, listener_tells_its_address)
{
	struct sockaddr_in address;
	ULONG length = 0;
	struct peer peer;

	incoming(&peer);
	cr_expect_eq(NdkGetListenerLocalAddress(peer.listener, NULL, &length),
		     STATUS_BUFFER_TOO_SMALL);
	cr_expect_eq(length, sizeof(address));
	cr_assert_eq(NdkGetListenerLocalAddress(peer.listener, (PSOCKADDR)&address, &length),
		     STATUS_SUCCESS);
	cr_expect_eq(address.sin_port, htons(7471));
	cr_expect_eq(NdkListen(peer.listener, (PSOCKADDR)&address, length, on_done, &peer.outcome),
		     STATUS_ADDRESS_ALREADY_ASSOCIATED);
	rig_close(&peer.rig);
}

/* NdkGetConnectionData's table. */
Test(passive, connection_data_table)
{
	char data[64];
	struct peer peer;
	ULONG length, inbound, outbound;

	incoming(&peer);
	length = 0;
	cr_expect_eq(NdkGetConnectionData(peer.connector, &inbound, &outbound, NULL, &length),
		     STATUS_SUCCESS, "NULL and 0 ask for the size");
	cr_expect_eq(length, 56);
	cr_expect_eq(inbound, 16, "capped to the adapter's limit");
	cr_expect_eq(outbound, 4);
	length = 56;
	cr_expect_eq(NdkGetConnectionData(peer.connector, NULL, NULL, data, &length),
		     STATUS_SUCCESS);
	cr_expect_eq(length, 56);
	cr_expect_str_eq(data, "hello");
	memset(data, 'x', sizeof(data));
	length = 2;
	cr_expect_eq(NdkGetConnectionData(peer.connector, NULL, NULL, data, &length),
		     STATUS_BUFFER_TOO_SMALL);
	cr_expect_eq(length, 56);
	cr_expect_arr_eq(data, "hexx", 4, "as much as there was room for");
	length = 5;
	cr_expect_eq(NdkGetConnectionData(peer.connector, NULL, NULL, NULL, &length),
		     STATUS_INVALID_PARAMETER, "illegal use");
	rig_close(&peer.rig);
}

Test(passive, accept_sends_what_it_was_given)
{
	const struct shm_connect *sent;
	struct peer peer;

	connected(&peer);
	sent = &peer.rig.fake.last[SHM_OP_ACCEPT].connect;
	cr_expect_eq(sent->connector, CONNECTOR);
	cr_expect_eq(sent->private_length, 3);
	cr_expect_str_eq((const char *)sent->private_data, "hi");
	cr_expect_eq(sent->inbound_read_limit, 16);
	cr_expect_eq(sent->outbound_read_limit, 2);
	cr_expect_eq(NdkSend(peer.rig.qp, NULL, NULL, 0, 0), STATUS_SUCCESS);
	rig_close(&peer.rig);
}

/* MaxCalleeData holds for accept and reject, and a call that is refused uses nothing up. */
Test(passive, private_data_of_accept_and_reject)
{
	char data[149] = { 0 };
	struct peer peer;

	incoming(&peer);
	cr_expect_eq(NdkAccept(peer.connector, peer.rig.qp, 0, 0, data, 149, NULL, NULL, on_done,
			       &peer.outcome),
		     STATUS_INVALID_BUFFER_SIZE);
	cr_expect_eq(NdkReject(peer.connector, data, 149), STATUS_INVALID_BUFFER_SIZE);
	cr_expect_eq(NdkAccept(peer.connector, peer.rig.qp, 0, 0, NULL, 8, NULL, NULL, on_done,
			       &peer.outcome),
		     STATUS_INVALID_PARAMETER);
	cr_expect_eq(NdkAccept(peer.connector, peer.rig.qp, 0, 0, data, 148, NULL, NULL, on_done,
			       &peer.outcome),
		     STATUS_PENDING);
	rig_run(&peer.rig);
	cr_expect_eq(peer.outcome.status, STATUS_SUCCESS);
	rig_close(&peer.rig);
}

Test(passive, a_first_message_makes_the_queue_pair_connected)
{
	const struct shm_cqe cqe = { .type = NdkOperationTypeReceive, .qpn = 0x100 };
	NDK_RESULT result;
	struct peer peer;

	incoming(&peer);
	peer.rig.fake.hold[SHM_OP_ACCEPT] = true;
	cr_assert_eq(accept_it(&peer), STATUS_PENDING);
	rig_run(&peer.rig);
	cr_expect_eq(NdkSend(peer.rig.qp, NULL, NULL, 0, 0), STATUS_CONNECTION_INVALID);
	fake_complete(&peer.rig.fake, 0, 0, &cqe);
	cr_assert_eq(NdkGetCqResults(peer.rig.cq, &result, 1), 1);
	cr_expect_eq(NdkSend(peer.rig.qp, NULL, NULL, 0, 0), STATUS_SUCCESS);
	fake_answer(&peer.rig.fake, SHM_OP_ACCEPT, STATUS_SUCCESS, NULL);
	rig_run(&peer.rig);
	cr_expect_eq(peer.outcome.status, STATUS_SUCCESS);
	rig_close(&peer.rig);
}

Test(passive, a_failed_accept_leaves_the_queue_pair_unconnected)
{
	struct peer peer;

	incoming(&peer);
	peer.rig.fake.status[SHM_OP_ACCEPT] = STATUS_CONNECTION_ABORTED;
	cr_assert_eq(accept_it(&peer), STATUS_PENDING);
	rig_run(&peer.rig);
	cr_expect_eq(peer.outcome.status, STATUS_CONNECTION_ABORTED);
	cr_expect_eq(NdkSend(peer.rig.qp, NULL, NULL, 0, 0), STATUS_CONNECTION_INVALID);
	cr_expect_eq(accept_it(&peer), STATUS_CONNECTION_INVALID);
	cr_expect_eq(NdkReject(peer.connector, NULL, 0), STATUS_CONNECTION_ABORTED);
	rig_close(&peer.rig);
}

/* NdkReject is synchronous. */
Test(passive, reject)
{
	struct peer peer;

	incoming(&peer);
	cr_expect_eq(NdkReject(peer.connector, "no", 3), STATUS_SUCCESS);
	rig_run(&peer.rig);
	cr_expect_str_eq((const char *)peer.rig.fake.last[SHM_OP_REJECT].connect.private_data,
			 "no");
	cr_expect_eq(accept_it(&peer), STATUS_CONNECTION_INVALID);
	rig_close(&peer.rig);
}

/* Listener close: told to the daemon at once, done when its connectors are. */
Test(passive, listener_waits_for_its_connectors)
{
	struct outcome listener = { 0 }, connector = { 0 };
	struct peer peer;

	incoming(&peer);
	peer.rig.fake.hold[SHM_OP_CLOSE] = true;
	NdkCloseListener(peer.listener, on_closed, &listener);
	rig_run(&peer.rig);
	cr_expect(fake_holds(&peer.rig.fake, SHM_OP_CLOSE));
	NdkCloseConnector(peer.connector, on_closed, &connector);
	rig_run(&peer.rig);
	/* Both replies arrive together, and the listener's even first. */
	fake_answer(&peer.rig.fake, SHM_OP_CLOSE, STATUS_SUCCESS, NULL);
	rig_run(&peer.rig);
	cr_expect_eq(listener.calls, 0);
	fake_answer(&peer.rig.fake, SHM_OP_CLOSE, STATUS_SUCCESS, NULL);
	rig_run(&peer.rig);
	cr_expect_eq(connector.calls, 1);
	cr_expect_eq(listener.calls, 1);
	rig_close(&peer.rig);
}

Test(passive, requests_to_a_closing_listener_are_rejected)
{
	struct outcome outcome = { 0 };
	struct peer peer;

	incoming(&peer);
	peer.rig.fake.hold[SHM_OP_CLOSE] = true;
	NdkCloseListener(peer.listener, on_closed, &outcome);
	request_arrives(&peer, CONNECTOR + 1);
	cr_expect_eq(peer.arrivals, 1);
	cr_expect_eq(peer.rig.fake.last[SHM_OP_CLOSE].object.object, CONNECTOR + 1);
	rig_close(&peer.rig);
}

Test(passive, connect_events_can_be_paused)
{
	struct peer peer;

	incoming(&peer);
	NdkControlConnectEvents(peer.listener, TRUE);
	rig_run(&peer.rig);
	cr_expect_eq(peer.rig.fake.last[SHM_OP_CONTROL_CONNECT_EVENTS].object.value, 1);
	NdkControlConnectEvents(peer.listener, FALSE);
	rig_run(&peer.rig);
	cr_expect_eq(peer.rig.fake.last[SHM_OP_CONTROL_CONNECT_EVENTS].object.value, 0);
	rig_close(&peer.rig);
}

/* The connector is the queue pair's successor. */
Test(passive, queue_pair_waits_for_its_connector)
{
	struct outcome qp = { 0 }, connector = { 0 };
	struct peer peer;

	connected(&peer);
	NdkCloseQp(peer.rig.qp, on_closed, &qp);
	rig_run(&peer.rig);
	cr_expect_eq(qp.calls, 0);
	NdkCloseConnector(peer.connector, on_closed, &connector);
	rig_run(&peer.rig);
	rig_run(&peer.rig);
	cr_expect_eq(connector.calls, 1);
	cr_expect_eq(qp.calls, 1);
	rig_close(&peer.rig);
}

Test(passive, a_closed_connector_leaves_its_queue_pair_unconnected)
{
	struct outcome outcome = { 0 };
	struct peer peer;

	connected(&peer);
	NdkCloseConnector(peer.connector, on_closed, &outcome);
	rig_run(&peer.rig);
	cr_expect_eq(NdkSend(peer.rig.qp, NULL, NULL, 0, 0), STATUS_CONNECTION_INVALID);
	rig_close(&peer.rig);
}

/* --- active -------------------------------------------------------------------------- */

static NTSTATUS connect_it(struct peer *peer, const void *data, ULONG length)
{
	struct sockaddr_in6 source = { .sin6_family = AF_INET6, .sin6_port = 0 };
	struct sockaddr_in6 destination = { .sin6_family = AF_INET6, .sin6_port = htons(7471) };

	inet_pton(AF_INET6, "fd00::1", &source.sin6_addr);
	inet_pton(AF_INET6, "fd00::2", &destination.sin6_addr);
	memset(&peer->outcome, 0, sizeof(peer->outcome));
	return NdkConnect(peer->connector, peer->rig.qp, (PSOCKADDR)&source, sizeof(source),
			  (PSOCKADDR)&destination, sizeof(destination), 5, 6, (PVOID)data, length,
			  on_done, &peer->outcome);
}

static void active(struct peer *peer)
{
	struct outcome outcome = { 0 };

	memset(peer, 0, sizeof(*peer));
	rig_queues(&peer->rig);
	NdkCreateConnector(peer->rig.adapter, on_created, &outcome, NULL);
	rig_run(&peer->rig);
	peer->connector = (NDK_CONNECTOR *)outcome.object;
	peer->rig.fake.hold[SHM_OP_CONNECT] = true;
}

static void peer_answers(struct peer *peer, NTSTATUS status)
{
	struct shm_reply reply = { 0 };

	reply.connection = (struct shm_connection){
		.inbound_read_limit = 3,
		.outbound_read_limit = 2,
		.private_length = 196,
		.private_data = "answer",
		.local = { .gid = { 0xfd, [15] = 1 }, .port = 50001, .family = 6 },
		.remote = { .gid = { 0xfd, [15] = 2 }, .port = 7471, .family = 6 },
	};
	fake_answer(&peer->rig.fake, SHM_OP_CONNECT, status, &reply);
	rig_run(&peer->rig);
	cr_assert_eq(peer->outcome.calls, 1);
	cr_assert_eq(peer->outcome.status, status);
}

static NTSTATUS complete_it(struct peer *peer)
{
	memset(&peer->outcome, 0, sizeof(peer->outcome));
	return NdkCompleteConnectEx(peer->connector, on_disconnect_ex, peer, on_done,
				    &peer->outcome);
}

Test(active, connect_then_complete)
{
	struct sockaddr_in6 address;
	ULONG length = sizeof(address);
	ULONG inbound, outbound, size = 0;
	struct peer peer;

	active(&peer);
	cr_expect_eq(complete_it(&peer), STATUS_CONNECTION_INVALID);
	cr_assert_eq(connect_it(&peer, "abc", 4), STATUS_PENDING);
	cr_expect_eq(NdkGetConnectionData(peer.connector, NULL, NULL, NULL, &size),
		     STATUS_CONNECTION_INVALID);
	fake_step(&peer.rig.fake);
	cr_expect_eq(peer.rig.fake.last[SHM_OP_CONNECT].connect.remote.gid[15], 2);
	cr_expect_eq(peer.rig.fake.last[SHM_OP_CONNECT].connect.remote.port, 7471);
	peer_answers(&peer, STATUS_SUCCESS);
	cr_expect_eq(NdkSend(peer.rig.qp, NULL, NULL, 0, 0), STATUS_CONNECTION_INVALID,
		     "not up before NdkCompleteConnect");
	cr_assert_eq(NdkGetConnectionData(peer.connector, &inbound, &outbound, NULL, &size),
		     STATUS_SUCCESS);
	cr_expect_eq(inbound, 3);
	cr_expect_eq(outbound, 2);
	cr_expect_eq(size, 196);
	cr_assert_eq(complete_it(&peer), STATUS_PENDING);
	rig_run(&peer.rig);
	cr_expect_eq(peer.outcome.status, STATUS_SUCCESS);
	cr_expect_eq(NdkSend(peer.rig.qp, NULL, NULL, 0, 0), STATUS_SUCCESS);
	cr_assert_eq(NdkGetLocalAddress(peer.connector, (PSOCKADDR)&address, &length),
		     STATUS_SUCCESS);
	cr_expect_eq(address.sin6_port, htons(50001), "the port that was chosen");
	cr_expect_eq(connect_it(&peer, NULL, 0), STATUS_CONNECTION_ACTIVE);
	rig_close(&peer.rig);
}

/* --- shared endpoints ------------------------------------------------------------------------ */

static NDK_SHARED_ENDPOINT *create_endpoint(struct peer *peer)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(0x0a000001) };
	struct outcome outcome = { 0 };

	cr_assert_eq(NdkCreateSharedEndpoint(peer->rig.adapter, (PSOCKADDR)&address,
					     sizeof(address), on_created, &outcome, NULL),
		     STATUS_PENDING);
	rig_run(&peer->rig);
	cr_assert_eq(outcome.calls, 1);
	cr_assert_eq(outcome.status, STATUS_SUCCESS);
	cr_assert_eq(outcome.object->ObjectType, NdkObjectTypeSharedEndpoint);
	return (NDK_SHARED_ENDPOINT *)outcome.object;
}

static NTSTATUS connect_shared(struct peer *peer, NDK_SHARED_ENDPOINT *endpoint)
{
	struct sockaddr_in destination = { .sin_family = AF_INET,
					   .sin_port = htons(7471),
					   .sin_addr.s_addr = htonl(0x0a000002) };

	memset(&peer->outcome, 0, sizeof(peer->outcome));
	return NdkConnectWithSharedEndpoint(peer->connector, peer->rig.qp, endpoint,
					    (PSOCKADDR)&destination, sizeof(destination), 5, 6,
					    "abc", 4, on_done, &peer->outcome);
}

/* Port 0: the endpoint's NdkGetLocalAddress tells what was chosen. */
Test(endpoint, tells_its_address)
{
	struct sockaddr_in address;
	NDK_SHARED_ENDPOINT *endpoint;
	ULONG length = 3;
	struct peer peer;

	active(&peer);
	endpoint = create_endpoint(&peer);
	cr_expect_eq(endpoint->Dispatch->NdkGetLocalAddress(endpoint, (PSOCKADDR)&address, &length),
		     STATUS_BUFFER_TOO_SMALL);
	cr_expect_eq(length, sizeof(address));
	cr_assert_eq(endpoint->Dispatch->NdkGetLocalAddress(endpoint, (PSOCKADDR)&address, &length),
		     STATUS_SUCCESS);
	cr_expect_eq(address.sin_addr.s_addr, htonl(0x0a000001));
	cr_expect_eq(address.sin_port, htons(49200));
	rig_close(&peer.rig);
}

/* It is an antecedent of the connectors that use it. */
Test(endpoint, waits_for_its_connectors)
{
	struct outcome endpoint_closed = { 0 }, connector_closed = { 0 };
	NDK_SHARED_ENDPOINT *endpoint;
	struct peer peer;

	active(&peer);
	endpoint = create_endpoint(&peer);
	cr_assert_eq(connect_shared(&peer, endpoint), STATUS_PENDING);
	fake_step(&peer.rig.fake);
	cr_expect_neq(peer.rig.fake.last[SHM_OP_CONNECT].connect.shared_endpoint, 0);
	cr_expect_eq(peer.rig.fake.last[SHM_OP_CONNECT].connect.inbound_read_limit, 5);
	cr_expect_eq(peer.rig.fake.last[SHM_OP_CONNECT].connect.outbound_read_limit, 6);
	cr_expect_eq(peer.rig.fake.last[SHM_OP_CONNECT].connect.private_length, 4);
	peer_answers(&peer, STATUS_SUCCESS);
	cr_expect_eq(NdkCloseSharedEndpoint(endpoint, on_closed, &endpoint_closed), STATUS_PENDING);
	rig_run(&peer.rig);
	cr_expect_eq(endpoint_closed.calls, 0);
	cr_expect_eq(NdkCloseConnector(peer.connector, on_closed, &connector_closed),
		     STATUS_PENDING);
	rig_run(&peer.rig);
	cr_expect_eq(connector_closed.calls, 1);
	cr_expect_eq(endpoint_closed.calls, 1);
	rig_close(&peer.rig);
}

/* A failed connect can be tried again from elsewhere; the first endpoint is then free to go. */
Test(endpoint, is_given_up_by_the_next_connect)
{
	NDK_SHARED_ENDPOINT *first, *second;
	struct outcome closed = { 0 };
	struct peer peer;

	active(&peer);
	first = create_endpoint(&peer);
	second = create_endpoint(&peer);
	cr_assert_eq(connect_shared(&peer, first), STATUS_PENDING);
	fake_step(&peer.rig.fake);
	peer_answers(&peer, STATUS_HOST_UNREACHABLE);
	cr_assert_eq(connect_shared(&peer, second), STATUS_PENDING);
	cr_expect_eq(NdkCloseSharedEndpoint(first, on_closed, &closed), STATUS_PENDING);
	rig_run(&peer.rig);
	cr_expect_eq(closed.calls, 1);
	rig_close(&peer.rig);
}

/* MaxCallerData; the refused call does not use the connector up (ND's large private data). */
Test(active, private_data)
{
	char data[57] = { 0 };
	struct peer peer;

	active(&peer);
	cr_expect_eq(connect_it(&peer, data, 57), STATUS_INVALID_BUFFER_SIZE);
	cr_expect_eq(connect_it(&peer, data, 56), STATUS_PENDING);
	rig_run(&peer.rig);
	cr_expect_eq(peer.rig.fake.last[SHM_OP_CONNECT].connect.private_length, 56);
	rig_close(&peer.rig);
}

/* Data of a reject can be read although the connect failed. */
Test(active, a_rejects_data_can_be_read)
{
	char data[196];
	ULONG length = sizeof(data);
	struct peer peer;

	active(&peer);
	cr_assert_eq(connect_it(&peer, NULL, 0), STATUS_PENDING);
	rig_run(&peer.rig);
	peer_answers(&peer, STATUS_CONNECTION_REFUSED);
	cr_expect_eq(NdkGetConnectionData(peer.connector, NULL, NULL, data, &length),
		     STATUS_SUCCESS);
	cr_expect_str_eq(data, "answer");
	cr_expect_eq(complete_it(&peer), STATUS_CONNECTION_INVALID);
	rig_close(&peer.rig);
}

/* The active side may reject between connect and complete. */
Test(active, reject_of_the_answer)
{
	struct peer peer;

	active(&peer);
	cr_expect_eq(NdkReject(peer.connector, NULL, 0), STATUS_CONNECTION_INVALID);
	connect_it(&peer, NULL, 0);
	rig_run(&peer.rig);
	peer_answers(&peer, STATUS_SUCCESS);
	cr_expect_eq(NdkReject(peer.connector, NULL, 0), STATUS_SUCCESS);
	cr_expect_eq(complete_it(&peer), STATUS_CONNECTION_INVALID);
	rig_close(&peer.rig);
}

Test(active, addresses_are_checked)
{
	struct sockaddr unknown = { .sa_family = AF_UNIX };
	struct peer peer;

	active(&peer);
	cr_expect_eq(NdkConnect(peer.connector, peer.rig.qp, &unknown, sizeof(unknown), &unknown,
				sizeof(unknown), 0, 0, NULL, 0, on_done, &peer.outcome),
		     STATUS_INVALID_ADDRESS);
	cr_expect_eq(NdkConnect(peer.connector, peer.rig.qp, NULL, 0, &unknown, sizeof(unknown), 0,
				0, NULL, 0, on_done, &peer.outcome),
		     STATUS_INVALID_ADDRESS);
	rig_close(&peer.rig);
}

/* Closing cancels what is pending, and tells so before the close completes. */
Test(active, close_while_connecting)
{
	struct outcome closed = { 0 };
	struct peer peer;

	active(&peer);
	connect_it(&peer, NULL, 0);
	rig_run(&peer.rig);
	NdkCloseConnector(peer.connector, on_closed, &closed);
	rig_run(&peer.rig);
	cr_expect_eq(peer.outcome.calls, 1);
	cr_expect_eq(peer.outcome.status, STATUS_CANCELLED);
	cr_expect_eq(closed.calls, 1);
	rig_close(&peer.rig);
}

/* --- the end ------------------------------------------------------------------------- */

Test(disconnect, event_comes_at_most_once)
{
	struct peer peer;

	connected(&peer);
	disconnected(&peer, 0);
	disconnected(&peer, 0);
	cr_expect_eq(peer.disconnects, 1);
	/* Nothing is flushed by it, and work may still be posted. */
	cr_expect_eq(peer.rig.fake.requests[SHM_OP_FLUSH_QP], 0);
	cr_expect_eq(NdkSend(peer.rig.qp, NULL, NULL, 0, 0), STATUS_SUCCESS);
	rig_close(&peer.rig);
}

Test(disconnect, ex_has_the_reason)
{
	struct peer peer;

	active(&peer);
	connect_it(&peer, NULL, 0);
	rig_run(&peer.rig);
	peer_answers(&peer, STATUS_SUCCESS);
	complete_it(&peer);
	rig_run(&peer.rig);
	{
		const struct shm_reply event = {
			.op = SHM_EV_DISCONNECTED,
			.async = { .object = peer.rig.fake.last[SHM_OP_CONNECT].connect.connector,
				   .value = 77 }
		};

		fake_send(&peer.rig.fake, &event);
	}
	rig_run(&peer.rig);
	cr_expect_eq(peer.disconnects, 1);
	cr_expect_eq(peer.reason, 77);
	rig_close(&peer.rig);
}

Test(disconnect, both_sides_then_the_queue_pair_is_of_no_more_use)
{
	struct outcome outcome = { 0 };
	struct peer peer;

	connected(&peer);
	disconnected(&peer, 0);
	cr_assert_eq(NdkDisconnect(peer.connector, on_done, &outcome), STATUS_PENDING);
	cr_expect_eq(NdkDisconnect(peer.connector, on_done, &outcome), STATUS_CONNECTION_INVALID);
	rig_run(&peer.rig);
	cr_expect_eq(outcome.status, STATUS_SUCCESS);
	cr_expect_eq(NdkSend(peer.rig.qp, NULL, NULL, 0, 0), STATUS_CONNECTION_INVALID);
	rig_close(&peer.rig);
}

/* The event may cross a local NdkDisconnect: the consumer hears both. */
Test(disconnect, event_crosses_a_local_one)
{
	struct outcome outcome = { 0 };
	struct peer peer;

	connected(&peer);
	cr_assert_eq(NdkDisconnect(peer.connector, on_done, &outcome), STATUS_PENDING);
	disconnected(&peer, 0);
	cr_expect_eq(peer.disconnects, 1);
	cr_expect_eq(outcome.calls, 1);
	rig_close(&peer.rig);
}

Test(disconnect, of_what_is_not_connected)
{
	struct peer peer;

	incoming(&peer);
	cr_expect_eq(NdkDisconnect(peer.connector, on_done, &peer.outcome),
		     STATUS_CONNECTION_INVALID);
	rig_close(&peer.rig);
}

Test(disconnect, no_event_after_close)
{
	struct outcome outcome = { 0 };
	struct peer peer;

	connected(&peer);
	NdkCloseConnector(peer.connector, on_closed, &outcome);
	disconnected(&peer, 0);
	cr_expect_eq(peer.disconnects, 0);
	rig_close(&peer.rig);
}

Test(disconnect, the_daemons_death_is_one)
{
	struct peer peer;

	connected(&peer);
	fake_die(&peer.rig.fake);
	while (OrielWait(peer.rig.adapter, -1) != STATUS_DEVICE_REMOVED)
		OrielProgress(peer.rig.adapter);
	cr_expect_eq(peer.disconnects, 1);
	rig_close(&peer.rig);
}
