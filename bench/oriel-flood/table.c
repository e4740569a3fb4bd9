/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table that an oriel-sink writes: one line for each queue pair ("qp QPN PSN") and window
 * ("window ADDRESS TOKEN LENGTH"), behind "mtu BYTES". Queue pair i of the table is ours of number
 * FLOOD_FIRST_QPN + i; every queue pair may use every window. At the end the PSNs in the table are
 * those that come next, so that another run goes on where this one ended. Or, for a testpmd, one of
 * our own making.
 */
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <rte_cycles.h>

#include "oriel-flood/flood.h"

#define TABLE_QP          "qp %8u %8u\n" /* as oriel-sink writes it */
#define PATIENCE_SECONDS  120.0
#define ICMP_ECHO_REQUEST 0x0800u /* type and code, where a RoCE frame has the UDP source port */

static bool complain(struct flood *f, unsigned int line, const char *what)
{
	f->message = flood_text("%s:%u: %s", f->options.table, line, what);
	return false;
}

static bool take_qp(struct flood *f, unsigned int line, const char *text)
{
	struct flood_qp *qp = &f->qp[f->qps];
	unsigned int qpn, psn;

	if (sscanf(text, "qp %u %u", &qpn, &psn) != 2 || qpn < 2 || qpn > QPN_MASK ||
	    psn > PSN_MASK)
		return complain(f, line, "expected 'qp QPN PSN'");
	if (f->qps == f->options.qps)
		return true; /* fewer are wanted than there are */
	qp->qpn = qpn;
	qp->start = psn;
	qp->reads = 16;
	qp->source_port = roce_source_port(0, FLOOD_FIRST_QPN + f->qps, qpn);
	f->qps++;
	return true;
}

static bool take_window(struct flood *f, unsigned int line, const char *text)
{
	struct flood_window *w = &f->window[f->windows];
	uint64_t address, length;
	unsigned int token;

	if (sscanf(text, "window %" SCNu64 " %u %" SCNu64, &address, &token, &length) != 3)
		return complain(f, line, "expected 'window ADDRESS TOKEN LENGTH'");
	if (length < f->options.size)
		return complain(f, line, "the window is smaller than --size");
	if (f->windows == f->options.windows)
		return true;
	w->address = address;
	w->token = token;
	f->windows++;
	return true;
}

static bool take_mtu(struct flood *f, unsigned int line, const char *text)
{
	unsigned int mtu;

	if (sscanf(text, "mtu %u", &mtu) != 1 || path_mtu_code(mtu) == 0)
		return complain(f, line, "expected 'mtu 256' to 'mtu 4096'");
	if (mtu > f->options.path_mtu)
		return complain(f, line, "the path MTU is larger than what --mtu carries");
	f->options.path_mtu = mtu;
	return true;
}

/* A file that nobody can make will never be there. */
static bool has_folder(const char *path)
{
	char *copy = strdup(path);
	struct stat folder;
	bool found = !copy || (stat(dirname(copy), &folder) == 0 && S_ISDIR(folder.st_mode));

	free(copy);
	return found;
}

/* The sink writes it when our address has been found: so we are there and answer meanwhile. */
static FILE *wait_for_table(struct flood *f)
{
	uint64_t end = rte_rdtsc() + (uint64_t)(PATIENCE_SECONDS / f->tick);
	FILE *file = fopen(f->options.table, "re");

	if (file || errno != ENOENT || !has_folder(f->options.table))
		return file;
	fprintf(stderr, "oriel-flood: waiting up to %.0f s for %s: oriel-sink --table writes it\n",
		PATIENCE_SECONDS, f->options.table);
	do {
		link_poll(f);
		file = fopen(f->options.table, "re");
	} while (!file && errno == ENOENT && rte_rdtsc() < end && !f->stop);
	return file;
}

bool table_read(struct flood *f)
{
	FILE *file = wait_for_table(f);
	unsigned int number = 0;
	char line[160];
	bool good = true;

	if (!file) {
		if (!f->stop)
			f->message = flood_text("%s: %s", f->options.table, strerror(errno));
		return false;
	}
	while (good && fgets(line, sizeof(line), file)) {
		number++;
		if (strncmp(line, "qp ", 3) == 0)
			good = take_qp(f, number, line);
		else if (strncmp(line, "window ", 7) == 0)
			good = take_window(f, number, line);
		else if (strncmp(line, "mtu ", 4) == 0)
			good = take_mtu(f, number, line);
		else
			good = complain(f, number, "expected qp, window or mtu");
	}
	fclose(file);
	if (good && (f->qps == 0 || f->windows == 0))
		good = complain(f, number, "the table has no queue pair or no window");
	if (good && f->qps < f->options.qps)
		good = complain(f, number, "the table has fewer queue pairs than --qps");
	/* With as many windows as queue pairs, or more, each has its share. */
	for (uint32_t i = 0; good && i < f->qps; i++) {
		uint32_t share = f->windows / f->qps;

		f->qp[i].window = share ? i * share : i % f->windows;
		f->qp[i].windows = share ? share : 1;
	}
	return good;
}

/*
 * PSNs have a fixed width in the table, so they are replaced in their places. A queue pair whose
 * messages are not all acknowledged could not go on; it is of no use to a next run.
 */
bool table_update(struct flood *f)
{
	FILE *file = fopen(f->options.table, "r+e");
	char line[160];
	uint32_t index = 0;

	while (file && index < f->qps && fgets(line, sizeof(line), file)) {
		const struct flood_qp *qp = &f->qp[index];
		const long after = ftell(file);

		if (strncmp(line, "qp ", 3) != 0)
			continue;
		fseek(file, after - (long)strlen(line), SEEK_SET);
		fprintf(file, TABLE_QP, qp->qpn,
			psn_add(qp->start, (uint32_t)(qp->next * f->psns_per_message) & PSN_MASK));
		fseek(file, after, SEEK_SET);
		index++;
	}
	if (file && fclose(file) == 0)
		return true;
	f->message = flood_text("%s: %s", f->options.table, strerror(errno));
	return false;
}

/* Our own numbers, so that an echo says whose it is. */
void table_invent(struct flood *f)
{
	f->qps = f->options.qps;
	f->windows = 1;
	for (uint32_t i = 0; i < f->qps; i++) {
		struct flood_qp *qp = &f->qp[i];

		qp->qpn = FLOOD_FIRST_QPN + i;
		qp->reads = 16;
		qp->windows = 1;
		qp->source_port = f->options.peer == PEER_ICMPECHO
					  ? ICMP_ECHO_REQUEST
					  : roce_source_port(0, qp->qpn, qp->qpn);
	}
}
