"""alexnet at mini scale."""

from __future__ import annotations

from tests.equivalence.images import case

# No normalisation: updates can be compared in fp32, where the frameworks take their fused optimisers.
CASE = case("alexnet", batch=4, fp32_update=2e-4)
