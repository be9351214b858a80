"""The mistakes that the network of resnet152 can have."""

from __future__ import annotations

from tests.equivalence.mutants.images import mutants

MUTANTS = mutants("resnet152")
