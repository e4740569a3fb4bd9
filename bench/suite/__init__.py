# SPDX-License-Identifier: BSD-3-Clause
"""What bench/run is made of."""
