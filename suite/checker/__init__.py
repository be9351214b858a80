"""The checker: tests whether the log follows the rules, and whether the claims follow from the log.

The functions are imported at their first use, because callers of the sandbox do not need them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suite.checker.verdict import Verdict, check_header, check_result
    from suite.log.finding import Finding

__all__ = ["Finding", "Verdict", "check_header", "check_result"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from suite.checker import verdict

    return getattr(verdict, name)
