"""alexnet at mini scale."""

from __future__ import annotations

from tests.equivalence.images import case

# No normalisation: updates can be compared in fp32, where the frameworks take their fused optimisers. Not at
# the published size, where three updates are some millionths of the weights: float32 keeps three digits of
# what was added to a number.
CASE = case("alexnet", batch=4, fp32_update={"mini": 2e-4})
