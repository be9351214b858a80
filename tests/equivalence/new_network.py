"""A classifier of no case file, in one framework: ``... new_network WORKLOAD VARIANT FRAMEWORK FILE``.

Writes to ``FILE`` what the equivalence test compares, in float64.
"""

from __future__ import annotations

import sys

import numpy as np

from tests.equivalence.images import case
from tests.equivalence.runner import measure


def main(workload: str, variant: str, framework: str, file: str) -> None:
    """See the module."""
    np.savez(file, **measure(case(workload, 4, variant), framework, "fp64"))  # type: ignore[arg-type, unused-ignore]


if __name__ == "__main__":
    main(*sys.argv[1:])
