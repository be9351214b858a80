"""vgg16 at mini scale."""

from __future__ import annotations

from tests.equivalence.images import case

CASE = case("vgg16", batch=4, reference=2, optimised=True)
