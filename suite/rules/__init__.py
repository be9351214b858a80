"""The rules as data: limits, checks, schemas, workloads, datasets, images and devices of one version."""

from suite.rules.images import MalformedRules
from suite.rules.load import Check, Rules, digest_of, load, synthetic_digest
from suite.rules.places import NEWEST as LATEST
from suite.rules.places import VERSIONS

__all__ = ["LATEST", "VERSIONS", "Check", "MalformedRules", "Rules", "digest_of", "load", "synthetic_digest"]
