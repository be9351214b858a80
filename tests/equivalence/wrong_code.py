"""Checks right and wrong compiled functions in PyTorch's interpreter and prints each outcome."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from suite.frameworks.pytorch.checked import Checked, WrongCode

COMPILED: dict[str, Callable[[Tensor], Tensor]] = {
    "right": lambda x: x * 2,
    "rounded": lambda x: x * (2 + 1e-6),
    "wrong": lambda x: x * 2.1,
    "not finite": lambda x: x / 0,
    "wrong for other shapes": lambda x: x * (2 if len(x) == 3 else 3),
}


def plain(x: Tensor) -> Tensor:
    """Twice ``x``."""
    return x * 2


def main() -> None:
    """One line per function: its name, and ``kept`` or ``refused``."""
    for name, compiled in COMPILED.items():
        checked, outcome = Checked(compiled, plain, torch.float32), "kept"
        try:
            for count in (3, 3, 4):
                checked(torch.arange(1.0, count + 1))
        except WrongCode as error:
            outcome = "refused" if "framework.fast=false" in str(error) else "refused without a fix"
        print(f"{name}: {outcome}")


if __name__ == "__main__":
    main()
