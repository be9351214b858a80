"""alexnet at mini scale."""

from __future__ import annotations

from tests.equivalence.images import case

CASE = case("alexnet", batch=4)
