/* SPDX-License-Identifier: BSD-3-Clause */
/* The live line on a terminal, and the best interval of a measurement. */
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "oriel-perf/run.h"

#define LINE_INTERVAL 500000000ull /* ns */

uint64_t run_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t run_end(uint64_t start, double seconds)
{
	return seconds > 0 ? start + (uint64_t)(seconds * 1e9) : UINT64_MAX;
}

static volatile sig_atomic_t interrupted;
static bool heeded; /* it has ended a run */

static void on_interrupt(int signal)
{
	interrupted = 1;
}

void run_catch_interrupt(void)
{
	struct sigaction action = { .sa_handler = on_interrupt, .sa_flags = SA_RESETHAND };

	sigaction(SIGINT, &action, NULL);
}

bool run_over(uint64_t now, uint64_t end)
{
	heeded = heeded || interrupted;
	return interrupted || now >= end;
}

bool run_given_up(void)
{
	return interrupted && !heeded;
}

void meter_start(struct meter *meter, const struct perf_options *options)
{
	const bool table = !options->csv && (!options->json || options->json_file);
	uint64_t now = run_now();

	*meter = (struct meter){ .start = now,
				 .mark = now,
				 .line = now,
				 .size = options->size,
				 .live = table && !options->quiet && isatty(STDOUT_FILENO) };
}

static void write_line(struct meter *meter, uint64_t now, uint64_t messages)
{
	double rate = (double)(messages - meter->line_messages) * 1e9 / (double)(now - meter->line);

	printf("\r %.1f s: %.0f messages/s, %.1f MiB/s \033[K", (double)(now - meter->start) * 1e-9,
	       rate, rate * meter->size / 1048576);
	fflush(stdout);
	meter->line = now;
	meter->line_messages = messages;
}

void meter_look(struct meter *meter, uint64_t now, uint64_t messages)
{
	if (now - meter->mark >= METER_INTERVAL) {
		double rate = (double)(messages - meter->mark_messages) * 1e9 /
			      (double)(now - meter->mark);

		if (rate > meter->peak)
			meter->peak = rate;
		meter->mark = now;
		meter->mark_messages = messages;
	}
	if (meter->live && now - meter->line >= LINE_INTERVAL)
		write_line(meter, now, messages);
}

void meter_end(struct meter *meter, uint64_t messages, struct run_result *result)
{
	double average;

	result->seconds = (double)(run_now() - meter->start) * 1e-9;
	average = result->seconds > 0 ? (double)messages / result->seconds : 0;
	result->peak = meter->peak > average ? meter->peak : average;
	if (meter->live) {
		printf("\r\033[K");
		fflush(stdout);
	}
}
