"""The checker: whether the log follows the rules, and the claims follow from the log."""

from suite.checker.verdict import Verdict, check_header, check_result
from suite.record.finding import Finding

__all__ = ["Finding", "Verdict", "check_header", "check_result"]
