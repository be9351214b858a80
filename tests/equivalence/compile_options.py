"""Prints which compile options JAX's framework keeps: one that XLA has, one that it does not have."""

from __future__ import annotations

import json

from suite.frameworks.jax.framework import known_options


def main() -> None:
    """See the module."""
    print(json.dumps(known_options({"xla_backend_optimization_level": 0, "xla_cpu_no_such_option": True})))


if __name__ == "__main__":
    main()
