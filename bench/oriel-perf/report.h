/* SPDX-License-Identifier: BSD-3-Clause */
/* Results for a person, for a spreadsheet, for a program. */
#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "oriel-perf/run.h"

struct report {
	const struct perf_options *options;
	const char *way;
	FILE *file;        /* of --out_json_file; NULL: none */
	json_t *results;   /* with --json */
	bool headed;       /* the head of the table is there */
	uint64_t verified; /* bytes, in all rows */
};

/* Before anything is measured: false, after a message, when the file cannot be written. */
bool report_open(struct report *report, const struct perf_options *options);
void report_begin(struct report *report, const struct way *way);
/* A row; `options` may be others than at the beginning in operation, mode, size. */
void report_add(struct report *report, const struct perf_options *options,
		const struct run_result *result);
/* Writes what is written at once. False: the file cannot be written, a message was printed. */
bool report_end(struct report *report);
void report_close(struct report *report);

#endif
