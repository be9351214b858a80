"""The mistakes that the network of inception_bn_small can have."""

from __future__ import annotations

from tests.equivalence.mutants.images import mutants

MUTANTS = mutants("inception_bn_small")
