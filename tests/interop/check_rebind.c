/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows asked for on a live connection: new tokens, dead tokens, requests that are refused. */
#include <stdio.h>
#include <string.h>

#include "checks.h"

static bool must_grant(struct peer *peer, const char *name, const struct ask *ask,
		       struct window *window);
static void check_new_window(void);
static void check_refused_requests(void);
static void check_refused_access(void);

void check_rebind(const char *argument)
{
	check_new_window();
	check_refused_requests();
	if (options.read_only_port)
		check_refused_access();
}

/* The new token works, the one before is dead and its use costs the connection. */
static void check_new_window(void)
{
	const char *name = "rebind new window";
	struct window window, first;
	struct peer peer, fresh;

	if (!must_connect(&peer, name, &ASK()))
		return;
	first = peer.window;
	for (unsigned int i = 0; i < 20; i++) {
		uint64_t offset = i * 1001;

		if (!must_grant(&peer, name, &ASK(.offset = offset, .length = 1000), &window))
			goto close;
		if (window.token == first.token || window.length != 1000) {
			report_failure("%s: expected another token and length 1000, "
				       "got token %#x after %#x, length %lu",
				       name, window.token, first.token, window.length);
			goto close;
		}
		if (!must_write_and_read(&peer, name, &window))
			goto close;
	}
	report_ok("%s", name);

	name = "rebind old token";
	if (!must_complete(&peer, name, "WRITE", IBV_WC_REM_ACCESS_ERR,
			   peer_write(&peer, first.addr, first.token, 0, 64)))
		goto close;
	if (!must_connect(&fresh, name, &ASK()))
		goto close;
	if (must_write_and_read(&fresh, name, &fresh.window) && must_close(&fresh, name))
		report_ok("%s", name);
close:
	must_close(&peer, name);
}

static bool must_grant(struct peer *peer, const char *name, const struct ask *ask,
		       struct window *window)
{
	struct ask named = *ask;
	int status;

	if (!named.name)
		named.name = options.export;
	status = peer_ask(peer, &named, window);
	if (!must_complete(peer, name, "ORQ1 by SEND", IBV_WC_SUCCESS, status))
		return false;
	if (!window->access)
		report_failure("%s: expected a window, got a refusal with code %u", name,
			       window->code);
	return window->access != 0;
}

static bool must_refuse(struct peer *peer, const char *name, const struct ask *ask,
			enum refusal_code code)
{
	struct window window;
	int status = peer_ask(peer, ask, &window);

	if (!must_complete(peer, name, "ORQ1 by SEND", IBV_WC_SUCCESS, status))
		return false;
	if (window.access || window.length || window.code != (uint32_t)code) {
		report_failure("%s: expected access 0 length 0 code %d, got access %u length %lu "
			       "code %u",
			       name, code, window.access, window.length, window.code);
		return false;
	}
	return true;
}

static void check_refused_requests(void)
{
	static const struct {
		const char *name;
		enum refusal_code code;
		struct ask ask;
	} asks[] = {
		{ "rebind refused bad magic",
		  REFUSED_BAD_REQUEST,
		  { .magic = 0x12345678, .version = 1 } },
		{ "rebind refused bad version",
		  REFUSED_BAD_REQUEST,
		  { .magic = ASK_MAGIC, .version = 9 } },
		{ "rebind refused bad access bits",
		  REFUSED_BAD_REQUEST,
		  { .magic = ASK_MAGIC, .version = 1, .access = 0x80 } },
		{ "rebind refused unknown export",
		  REFUSED_NO_EXPORT,
		  { .magic = ASK_MAGIC, .version = 1, .name = "no-such-export" } },
		{ "rebind refused offset past the end",
		  REFUSED_RANGE,
		  { .magic = ASK_MAGIC, .version = 1, .offset = 1ull << 40 } },
		{ "rebind refused length past the end",
		  REFUSED_RANGE,
		  { .magic = ASK_MAGIC, .version = 1, .length = 1ull << 40 } },
		{ "rebind refused wrapping range",
		  REFUSED_RANGE,
		  { .magic = ASK_MAGIC,
		    .version = 1,
		    .offset = 4096,
		    .length = UINT64_MAX - 100 } },
	};
	struct window window;
	struct peer peer;

	if (!must_connect(&peer, "rebind refused", &ASK()))
		return;
	for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++)
		if (must_refuse(&peer, asks[i].name, &asks[i].ask, asks[i].code))
			report_ok("%s", asks[i].name);
	if (must_grant(&peer, "rebind after refusals", &ASK(.length = 4096), &window) &&
	    must_write_and_read(&peer, "rebind after refusals", &window) &&
	    must_close(&peer, "rebind after refusals"))
		report_ok("rebind after refusals");
}

static void check_refused_access(void)
{
	const char *name = "rebind refused access";
	struct window window;
	struct peer peer;
	int error = connect_to(&peer, options.read_only_port, &ASK());

	if (error)
		report_failure("%s: expected a connection to port %u, got %s", name,
			       options.read_only_port, status_text(&peer, error));
	else if (peer.window.access != ACCESS_READ)
		report_failure("%s: expected access 1, got %u", name, peer.window.access);
	else if (must_refuse(&peer, name, &ASK(.access = ACCESS_WRITE), REFUSED_ACCESS) &&
		 must_complete(&peer, name, "ORQ1 by SEND", IBV_WC_SUCCESS,
			       peer_ask(&peer, &ASK(), &window)) &&
		 must_complete(&peer, name, "READ", IBV_WC_SUCCESS,
			       peer_read(&peer, window.addr, window.token, 0, 64)) &&
		 must_complete(&peer, name, "WRITE to a read-only export", IBV_WC_REM_ACCESS_ERR,
			       peer_write(&peer, window.addr, window.token, 0, 64)))
		report_ok("%s", name);
	peer_close(&peer);
}

void check_sendinv(const char *argument)
{
	const char *name = "sendinv";
	struct window window;
	struct peer peer;
	uint32_t first;

	if (!must_connect(&peer, name, &ASK()))
		return;
	window = peer.window;
	first = window.token;
	for (unsigned int i = 0; i < 20; i++) {
		if (!must_write_and_read(&peer, name, &window) ||
		    !must_complete(&peer, name, "SEND with invalidate", IBV_WC_SUCCESS,
				   peer_send_invalidate(&peer, window.token)) ||
		    !must_grant(&peer, name, &ASK(.length = 8192), &window))
			goto close;
	}
	if (must_be_refused(&peer, name, "WRITE with the first token",
			    peer_write(&peer, window.addr, first, 0, 64)))
		report_ok("%s", name);
close:
	must_close(&peer, name);
}
