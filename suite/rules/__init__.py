"""The rules as data: limits, checks, schemas, workloads, datasets, images and devices of one version."""

from suite.rules.images import MalformedRules
from suite.rules.load import Check, Rules, digest_of, load, synthetic_digest
from suite.rules.root import LATEST, SHIPPED, VERSIONS, RulesRoot

__all__ = [
    "LATEST", "SHIPPED", "VERSIONS", "Check", "MalformedRules", "Rules", "RulesRoot", "digest_of", "load",
    "synthetic_digest",
]  # fmt: skip
