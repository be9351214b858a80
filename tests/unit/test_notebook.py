"""The notebook of docs/ runs, and its page has the outputs of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.notebook import cells, output_of, page_of, rendered

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = Path("docs/reading_results.py")


def test_page_has_the_outputs_of_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make format` writes the page again, after a change of the notebook or of the results it reads."""
    monkeypatch.chdir(ROOT)
    assert rendered(NOTEBOOK) == page_of(NOTEBOOK).read_text("utf-8")


def test_cells_are_text_or_code_with_the_output_of_a_notebook() -> None:
    source = (
        "# %% [markdown]\n# # Title\n#\n# text\n\n# %%\nx = 2\nprint('printed')\nx + 1\n\n# %%\nx = x * 2\n"
    )
    (text, first, second) = cells(source)
    assert text == (True, "# Title\n\ntext")
    names: dict[str, object] = {}
    assert output_of(first[1], names) == "printed\n3\n"
    assert output_of(second[1], names) == ""
    assert names["x"] == 4


def test_cell_that_fails_fails_the_page() -> None:
    with pytest.raises(ZeroDivisionError):
        output_of("1 / 0", {})
