"""inception_v3 at mini scale."""

from __future__ import annotations

from tests.equivalence.images import case

CASE = case("inception_v3", batch=8, optimised=True, shortened=True)
