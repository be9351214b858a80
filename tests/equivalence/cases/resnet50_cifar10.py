"""resnet50_cifar10 at mini scale."""

from __future__ import annotations

from tests.equivalence.images import case

CASE = case("resnet50_cifar10", batch=4, reference=16, optimised=True, shortened=True)
