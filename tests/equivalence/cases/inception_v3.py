"""inception_v3 at mini scale."""

from __future__ import annotations

from tests.equivalence.images import case

# Normalisation and ReLU in turns magnify a difference by a fifth or so a layer (Yang et al., "A Mean Field
# Theory of Batch Normalization", ICLR 2019). Without shortcuts the 47 layers make of float32's rounding up to
# 5e-4 in the outputs: one framework in fp32 is as far from itself in fp64.
CASE = case("inception_v3", batch=16, wider={"outputs": 2e-3, "first loss": 1e-4})
