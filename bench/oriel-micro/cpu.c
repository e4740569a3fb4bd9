/* SPDX-License-Identifier: BSD-3-Clause */
/* Which processors there are, and a thread that stays on one. */
#include "oriel-micro/cpu.h"

#include <sched.h>

int cpu_from_end(unsigned int n)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return -1;
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET(cpu, &set) && n-- == 0)
			return cpu;
	return -1;
}

bool cpu_pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return false;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) == 0;
}
