"""The registry: public keys, nonces, attempts, waivers and withdrawals, and the assurance that follows."""

from suite.submissions.registry.model import Registry
from suite.submissions.registry.read import read_registry

__all__ = ["Registry", "read_registry"]
