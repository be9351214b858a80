"""JAX's LSTM pads sizes that are no multiple of eight in half precision; the results are those without."""

from __future__ import annotations

from pathlib import Path

from tests.equivalence.compare import in_norm
from tests.equivalence.interpreters import arrays_of


def test_padding_changes_nothing_but_rounding(tmp_path: Path) -> None:
    found = arrays_of("tests.equivalence.padded_lstm", tmp_path)("jax")
    names = [name.removeprefix("float32/") for name in found if name.startswith("float32/")]
    assert len(names) == 6
    differences = {name: in_norm(found[f"bfloat16/{name}"], found[f"float32/{name}"]) for name in names}
    print(differences)
    assert max(differences.values()) < 0.02
