# SPDX-License-Identifier: Apache-2.0
"""The reasons why a TVM function is not imported."""

from __future__ import annotations


class Refused(Exception):
    """Says that a function has a construct without a meaning in quern.

    ``reason`` names the kind of construct in a few words, the same for every function that has
    it, so that refusals can be counted. ``detail`` names the construct in this function.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail
