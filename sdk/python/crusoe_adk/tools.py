# SPDX-License-Identifier: Apache-2.0
"""The name under which the platform's documents import it."""

from weir.adk import run_python

__all__ = ["run_python"]
