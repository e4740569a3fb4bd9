#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# guide.sh GUIDE INCLUDES COMPILER...: compiles the C program that the guide shows.
guide=$1 includes=$2
shift 2
grep -q '^int main' "$guide" || exit 1 # or nothing would be compiled
sed -n '/^```c$/,/^```$/{/^```/d;p}' "$guide" |
	"$@" -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -Werror -fsyntax-only -I"$includes" -x c -
