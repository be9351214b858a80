"""The mistakes that the network of alexnet can have."""

from __future__ import annotations

from tests.equivalence.mutants.images import mutants

MUTANTS = mutants("alexnet")
