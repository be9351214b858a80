"""resnet50 at mini scale."""

from __future__ import annotations

from tests.equivalence.images import case

CASE = case("resnet50", batch=4, variant="v1.5", optimised=True)
