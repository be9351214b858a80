"""The project's public record (keys, nonces, attempts, waivers) and what follows from it for a result."""

from suite.submissions.registry.model import Registry
from suite.submissions.registry.read import read_registry

__all__ = ["Registry", "read_registry"]
