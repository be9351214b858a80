"""A deep-learning benchmark suite whose product is a log that can be checked.

In a notebook, ``suite.load(path)`` reads a result or a folder of results and ``suite.compare(a, b)`` compares
two (docs/reading-results.md).
"""

__version__ = "0.1.0"

# Imported at their first use: workers import suite.* with Python 3.10, without the packages of the host.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from suite.compare.loaded import compare_loaded as compare
    from suite.compare.loaded import load

__all__ = ["__version__", "compare", "load"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "load":
        return import_module("suite.compare.loaded").load
    if name == "compare":
        return import_module("suite.compare")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), "compare", "load"]
