/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameters of congestion control that change while a worker takes them over. */
#include <criterion/criterion.h>
#include <pthread.h>

#include "rig.h"
#include "transport/private.h"

#define SWITCHES 1000000u

static struct raw raw;
static bool over;

/* All rates and times alike, so that half of one and half of another is seen. */
static struct congestion_parameters alike(uint64_t value)
{
	return (struct congestion_parameters){
		.enabled = value & 1,
		.line_rate = value,
		.minimum_rate = value,
		.additive_rate = value,
		.hyper_rate = value,
		.alpha_period = value,
		.increase_period = value,
		.increase_bytes = value,
		.reduce_period = value,
		.cnp_interval = value,
	};
}

static void expect_alike(const struct congestion_parameters *parameters)
{
	const uint64_t value = parameters->line_rate;

	cr_assert_eq(parameters->enabled, value & 1);
	cr_assert_eq(parameters->minimum_rate, value);
	cr_assert_eq(parameters->additive_rate, value);
	cr_assert_eq(parameters->hyper_rate, value);
	cr_assert_eq(parameters->alpha_period, value);
	cr_assert_eq(parameters->increase_period, value);
	cr_assert_eq(parameters->increase_bytes, value);
	cr_assert_eq(parameters->reduce_period, value);
	cr_assert_eq(parameters->cnp_interval, value);
}

static void *switch_often(void *shared)
{
	for (uint64_t i = 1; i <= SWITCHES; i++) {
		const struct congestion_parameters parameters = alike(1000000 + i);

		transport_set_congestion(shared, &parameters);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	return NULL;
}

Test(switched, a_worker_takes_them_whole_while_they_change)
{
	const struct congestion_parameters first = alike(1000000);
	pthread_t thread;

	raw_create(&raw, rig_connection());
	transport_set_congestion(raw.end.shared, &first);
	end_poll(&raw.end, raw.now);
	cr_assert_eq(pthread_create(&thread, NULL, switch_often, raw.end.shared), 0);
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		end_poll(&raw.end, raw.now);
		expect_alike(&raw.end.worker[0]->congestion);
	}
	pthread_join(thread, NULL);
	end_poll(&raw.end, raw.now);
	cr_assert_eq(raw.end.worker[0]->congestion.line_rate, 1000000 + SWITCHES);
	expect_alike(&raw.end.worker[0]->congestion);
	raw_destroy(&raw);
}
