"""The registry: public keys, nonces, attempts and waivers, and the assurance of results that follows."""

from suite.submissions.registry.model import Registry
from suite.submissions.registry.read import read_registry

__all__ = ["Registry", "read_registry"]
