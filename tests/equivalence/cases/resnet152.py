"""resnet152 at mini scale.

At three tenths of the other classifiers' rate: at theirs ten steps of 152 layers on four photographs magnify
the rounding of float64 to percents, and the losses no longer compare the frameworks.
"""

from __future__ import annotations

from dataclasses import replace

from tests.equivalence.images import case

_USUAL = case("resnet152", batch=4, variant="v1.5", optimised=True)
CASE = replace(_USUAL, shortened=True, hyper={**_USUAL.hyper, "rate": "0.003"})
