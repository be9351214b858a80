"""inception_bn_small at mini scale."""

from __future__ import annotations

from tests.equivalence.images import case

CASE = case("inception_bn_small", batch=4, reference=16, optimised=True, shortened=True)
