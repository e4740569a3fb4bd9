/* SPDX-License-Identifier: BSD-3-Clause */
/* What a person can do about a status. */
#ifndef APP_COMMON_ADVICE_H
#define APP_COMMON_ADVICE_H

#include <ndk/ndk.h>

/* ": what it comes of, what to look at", to be put behind its name; "" where there is no more. */
const char *advice_on(NTSTATUS status);

#endif
