"""A pair from outside that breaks the contract twice, to see that the checks can fail."""

from __future__ import annotations

from typing import Any

from suite.workloads.ncf import pytorch


class Pair(pytorch.Pair):
    """Collects backwards and forgets to start again."""

    def reset(self) -> None:
        """Nothing."""

    def collect(self) -> list[Any]:
        """The results, last first."""
        return super().collect()[::-1]
