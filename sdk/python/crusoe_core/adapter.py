# SPDX-License-Identifier: Apache-2.0
"""The name under which the platform's documents import it."""

from weir import internal_caller_headers

__all__ = ["internal_caller_headers"]
