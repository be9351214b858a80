"""googlenet at mini scale."""

from __future__ import annotations

from tests.equivalence.images import case

CASE = case("googlenet", batch=4, shortened=True)
