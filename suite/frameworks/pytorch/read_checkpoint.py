"""``python read_checkpoint.py CHECKPOINT ARRAYS``: the tensors of a checkpoint as a file of NumPy arrays.

The host runs it in PyTorch's environment (``suite/datasets/torch_checkpoint.py``). ``weights_only`` restricts
PyTorch's unpickler to tensors and plain values. For a file with
anything else it exits with status 1 and one line on standard error.
"""

from __future__ import annotations

import sys

import numpy as np
import torch


def main(checkpoint: str, arrays: str) -> int:
    """Read ``checkpoint``, write ``arrays`` (.npz); 0, or 1 where it is not a mapping of names to tensors."""
    try:
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
        if not isinstance(content, dict) or not all(
            isinstance(one, torch.Tensor) for one in content.values()
        ):
            raise ValueError("expected a mapping of names to tensors, found other values")
        values = {str(name): tensor.detach().numpy() for name, tensor in content.items()}
    except Exception as error:  # noqa: BLE001 - PyTorch raises many types for a broken file
        print(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}", file=sys.stderr)
        return 1
    with open(arrays, "xb") as stream:  # noqa: PTH123 - pathlib is not needed here
        np.savez(stream, **values)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
