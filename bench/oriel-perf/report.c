/* SPDX-License-Identifier: BSD-3-Clause */
/* Results for a person (perftest's columns), for a spreadsheet, for a program. */
#include "oriel-perf/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MEBI 1048576.0

static unsigned long long messages(const struct run_result *result)
{
	return result->messages + result->received;
}

static double average(const struct run_result *result)
{
	return result->seconds > 0 ? (double)messages(result) / result->seconds : 0;
}

/* Windows and connections are counted; they carry nothing. */
static bool moves_data(const struct perf_options *options)
{
	return options->operation <= PERF_MIXED;
}

static double bytes_per_second(const struct perf_options *options, double messages_per_second)
{
	return moves_data(options) ? messages_per_second * options->size : 0;
}

static double in_unit(const struct perf_options *options, double messages_per_second)
{
	double bytes = bytes_per_second(options, messages_per_second);

	return options->gigabits ? bytes * 8e-9 : bytes / MEBI;
}

static double us(uint64_t ns)
{
	return (double)ns / 1000;
}

/* --- tables ----------------------------------------------------------------------------- */

static void print_line(void)
{
	puts("---------------------------------------------------------------------------------"
	     "-------------------");
}

static void print_head(const struct perf_options *options, bool latency)
{
	const char *unit = options->gigabits ? "Gb/sec" : "MiB/sec";

	if (options->summary)
		printf("%-14s %10s %12s %12s %10s %10s %10s\n", "operation", "bytes", unit,
		       "messages/s", "p50 us", "p99 us", "p99.9 us");
	else if (latency)
		printf(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    "
		       "t_avg[usec]    t_stdev[usec]   99%% percentile[usec]   99.9%% "
		       "percentile[usec]   99.99%% percentile[usec]\n");
	else if (!moves_data(options))
		printf(" #bytes     #iterations     peak[1/sec]     average[1/sec]\n");
	else
		printf(" #bytes     #iterations    BW peak[%s]    BW average[%s]   "
		       "MsgRate[Mpps]\n",
		       unit, unit);
}

static void print_summary(const struct perf_options *options, const struct run_result *result)
{
	const char *operation = options_operation(options->operation);

	printf("%s%-*s %10u %12.1f %12.0f ", operation, 14 - (int)strlen(operation),
	       result->latency ? " latency" : "", options->size, in_unit(options, average(result)),
	       average(result));
	if (result->latency)
		printf("%10.1f %10.1f %10.1f\n", us(latency_percentile(&result->times, 50)),
		       us(latency_percentile(&result->times, 99)),
		       us(latency_percentile(&result->times, 99.9)));
	else
		printf("%10s %10s %10s\n", "-", "-", "-");
}

static void print_row(const struct perf_options *options, const struct run_result *result)
{
	const struct latency *times = &result->times;

	if (options->summary)
		print_summary(options, result);
	else if (result->latency)
		printf(" %-7u %-10llu %12.2f %14.2f %16.2f %14.2f %16.2f %22.2f %24.2f %25.2f\n",
		       options->size, (unsigned long long)result->messages, us(times->least),
		       us(times->most), us(latency_percentile(times, 50)),
		       latency_mean(times) / 1000, latency_deviation(times) / 1000,
		       us(latency_percentile(times, 99)), us(latency_percentile(times, 99.9)),
		       us(latency_percentile(times, 99.99)));
	else if (!moves_data(options))
		printf(" %-10u %-12llu %14.1f %18.1f\n", options->size,
		       (unsigned long long)result->messages, result->peak, average(result));
	else
		printf(" %-10u %-12llu %16.2f %19.2f %17.6f\n", options->size, messages(result),
		       in_unit(options, result->peak), in_unit(options, average(result)),
		       average(result) * 1e-6);
}

static void print_times(const struct latency *times)
{
	printf(" # usec: least %.2f, typical %.2f, average %.2f, 99%% %.2f, 99.9%% %.2f, 99.99%% "
	       "%.2f, most %.2f\n",
	       us(times->least), us(latency_percentile(times, 50)), latency_mean(times) / 1000,
	       us(latency_percentile(times, 99)), us(latency_percentile(times, 99.9)),
	       us(latency_percentile(times, 99.99)), us(times->most));
}

static void print_notes(const struct perf_options *options, const struct run_result *result)
{
	if (options->operation == PERF_MIXED)
		printf(" # %llu of them reads\n", (unsigned long long)result->reads);
	if (options->operation == PERF_CONNECT)
		printf(" # %.1f connections a second\n", average(result));
	if (result->windows && options->operation != PERF_WINDOW)
		printf(" # %llu windows, %.0f a second\n", (unsigned long long)result->windows,
		       (double)result->windows / result->seconds);
	if (result->refused && options->operation == PERF_COMPARE_SWAP)
		printf(" # %llu swaps found another value\n", (unsigned long long)result->refused);
	else if (result->refused)
		printf(" # %llu times the target had no token to spare and was asked again\n",
		       (unsigned long long)result->refused);
	if (result->timed)
		print_times(&result->times);
	if (result->verified && !options->summary)
		printf(" # verified: %llu bytes compared\n", (unsigned long long)result->verified);
}

static void print_histogram(const struct latency *times)
{
	uint64_t from, to, seen = 0;

	printf(" # from[usec]     below[usec]          count   percentile\n");
	for (unsigned int i = 0; i < LATENCY_BUCKETS; i++) {
		if (!times->bucket[i])
			continue;
		seen += times->bucket[i];
		latency_bounds(i, &from, &to);
		printf(" # %-14.3f %-14.3f %11llu %12.5f\n", us(from), us(to),
		       (unsigned long long)times->bucket[i],
		       100 * (double)seen / (double)times->count);
	}
}

/* --- comma-separated --------------------------------------------------------------------- */

static void print_csv(const struct report *report, const struct perf_options *options,
		      const struct run_result *result)
{
	const struct latency *times = &result->times;

	if (!report->headed)
		puts("operation,mode,bytes,queue_pairs,depth,messages,seconds,"
		     "peak_bytes_per_second,bytes_per_second,messages_per_second,min_us,p50_us,"
		     "mean_us,stdev_us,p90_us,"
		     "p99_us,p99_9_us,p99_99_us,max_us");
	printf("%s,%s,%u,%u,%u,%llu,%.6f,%.0f,%.0f,%.1f", options_operation(options->operation),
	       result->latency ? "latency" : "bandwidth", options->size, options->queue_pairs,
	       options->depth, messages(result), result->seconds,
	       bytes_per_second(options, result->peak), bytes_per_second(options, average(result)),
	       average(result));
	if (result->latency || result->timed)
		printf(",%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f\n", us(times->least),
		       us(latency_percentile(times, 50)), latency_mean(times) / 1000,
		       latency_deviation(times) / 1000, us(latency_percentile(times, 90)),
		       us(latency_percentile(times, 99)), us(latency_percentile(times, 99.9)),
		       us(latency_percentile(times, 99.99)), us(times->most));
	else
		puts(",,,,,,,,,");
}

/* --- JSON -------------------------------------------------------------------------------- */

static json_t *histogram_json(const struct latency *times)
{
	json_t *buckets = json_array();
	uint64_t from, to;

	for (unsigned int i = 0; i < LATENCY_BUCKETS; i++) {
		if (!times->bucket[i])
			continue;
		latency_bounds(i, &from, &to);
		json_array_append_new(buckets, json_pack("[f,f,I]", us(from), us(to),
							 (json_int_t)times->bucket[i]));
	}
	return buckets;
}

static json_t *latency_json(const struct latency *times)
{
	return json_pack(
		"{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:I,s:o}", "min", us(times->least), "mean",
		latency_mean(times) / 1000, "stdev", latency_deviation(times) / 1000, "p50",
		us(latency_percentile(times, 50)), "p90", us(latency_percentile(times, 90)), "p99",
		us(latency_percentile(times, 99)), "p99.9", us(latency_percentile(times, 99.9)),
		"p99.99", us(latency_percentile(times, 99.99)), "max", us(times->most), "count",
		(json_int_t)times->count, "histogram", histogram_json(times));
}

static json_t *result_json(const struct perf_options *options, const struct run_result *result)
{
	json_t *object = json_pack(
		"{s:s,s:s,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:I,s:I}", "operation",
		options_operation(options->operation), "mode",
		result->latency ? "latency" : "bandwidth", "bytes", (json_int_t)options->size,
		"messages", (json_int_t)result->messages, "received", (json_int_t)result->received,
		"seconds", result->seconds, "messages_per_second", average(result),
		"bytes_per_second", bytes_per_second(options, average(result)),
		"peak_messages_per_second", result->peak, "peak_bytes_per_second",
		bytes_per_second(options, result->peak), "reads", (json_int_t)result->reads,
		"windows", (json_int_t)result->windows, "refused", (json_int_t)result->refused,
		"verified_bytes", (json_int_t)result->verified);

	if (result->latency || result->timed)
		json_object_set_new(object, "latency_us", latency_json(&result->times));
	return object;
}

static bool write_json(const struct report *report)
{
	const struct perf_options *options = report->options;
	json_t *all =
		json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:O}", "program", "oriel-perf", "version",
			  ORIEL_VERSION, "connection", report->way, "queue_pairs",
			  (json_int_t)options->queue_pairs, "depth", (json_int_t)options->depth,
			  "inline", (json_int_t)options->inline_size, "results", report->results);
	FILE *file = report->file ? report->file : stdout;
	bool good = all && json_dumpf(all, file, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0;

	good = fputc('\n', file) != EOF && good;
	good = fflush(file) == 0 && good;
	if (!good)
		fprintf(stderr, "oriel-perf: %s: %s\n",
			options->json_file ? options->json_file : "standard output",
			strerror(errno));
	json_decref(all);
	return good;
}

/* --- all of them ------------------------------------------------------------------------- */

static bool has_table(const struct perf_options *options)
{
	return !options->csv && (!options->json || options->json_file);
}

bool report_open(struct report *report, const struct perf_options *options)
{
	*report = (struct report){ .options = options };
	if (!options->json_file)
		return true;
	report->file = fopen(options->json_file, "we");
	if (!report->file)
		fprintf(stderr, "oriel-perf: %s: %s\n", options->json_file, strerror(errno));
	return report->file;
}

void report_begin(struct report *report, const struct way *way)
{
	const struct perf_options *options = report->options;
	const struct session *session = &way->session;

	report->way = way->opener->name;
	if (options->json)
		report->results = json_array();
	if (!has_table(options) || options->summary)
		return;
	print_line();
	printf("                    RDMA %s %s\n", options_operation(options->operation),
	       options->mode == PERF_LATENCY ? "Latency Test"
	       : moves_data(options)         ? "BW Test"
					     : "Rate Test");
	printf(" Connection      : %s\t\tNumber of qps   : %u\n", way->opener->name,
	       options->queue_pairs);
	printf(" TX depth        : %u\t\tCQ Moderation   : %u\n", options->depth,
	       options->moderation);
	print_line();
	if (options->operation == PERF_CONNECT)
		return;
	for (uint32_t i = 0; i < options->queue_pairs && i < 8; i++)
		printf(" QPN 0x%06x RKey 0x%08x VAddr 0x%016llx\n",
		       OrielGetQpNumber(session->peers[i].qp), session->peers[i].remote.token,
		       (unsigned long long)session->peers[i].remote.address);
	print_line();
}

void report_add(struct report *report, const struct perf_options *options,
		const struct run_result *result)
{
	if (report->results)
		json_array_append_new(report->results, result_json(options, result));
	if (options->csv)
		print_csv(report, options, result);
	if (has_table(options)) {
		if (!report->headed)
			print_head(options, result->latency);
		print_row(options, result);
		print_notes(options, result);
		if (options->histogram && (result->latency || result->timed))
			print_histogram(&result->times);
	}
	report->headed = true;
	report->verified += result->verified;
	fflush(stdout);
}

bool report_end(struct report *report)
{
	bool good = true;

	if (has_table(report->options) && !report->options->summary)
		print_line();
	else if (has_table(report->options) && report->verified)
		printf("# verified: %llu bytes compared\n", (unsigned long long)report->verified);
	if (report->results)
		good = write_json(report);
	json_decref(report->results);
	report->results = NULL;
	return good;
}

void report_close(struct report *report)
{
	if (report->file)
		fclose(report->file);
	report->file = NULL;
}
