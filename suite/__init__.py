"""A deep-learning benchmark suite whose product is a log that can be checked."""

__version__ = "0.1.0"
