#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Passes when the stress test, built without the grace period, catches a slip in time.
# Its own finding counts, not the races that the thread sanitizer sees in the broken build.
TSAN_OPTIONS=report_bugs=0 "$1" --seconds 100
rc=$?
if [ "$rc" -ne 1 ]; then
	echo "$1: expected exit code 1 (an access slipped through), got $rc" >&2
	exit 1
fi
