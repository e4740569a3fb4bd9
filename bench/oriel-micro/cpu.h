/* SPDX-License-Identifier: BSD-3-Clause */
/* Processors for measurements that want two. */
#ifndef ORIEL_MICRO_CPU_H
#define ORIEL_MICRO_CPU_H

#include <stdbool.h>

/* The n-th from the end of those this process may use; -1: there is none. */
int cpu_from_end(unsigned int n);
/* The calling thread runs there from now on. */
bool cpu_pin(int cpu);

#endif
