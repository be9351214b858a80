"""The mistakes that the network of vgg16 can have."""

from __future__ import annotations

from tests.equivalence.mutants.images import mutants

MUTANTS = mutants("vgg16")
