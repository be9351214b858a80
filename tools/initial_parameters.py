"""Write the digests of the frozen initial weights into the rules.

``python -m tools.initial_parameters [--workload a,b]`` writes them for each scale whose rules have a file.
The weights are equal on every platform: another digest means a changed specification.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from suite import rules, workloads
from suite.common import weights
from suite.workloads import specification

SCALES = {rules.LATEST: "reference", "practice": "mini"}


def digests(name: str, scale: str) -> dict[str, str]:
    """The digest of every variant of the workload ``name`` at ``scale``; prints their sizes."""
    spec = specification(name)
    found = {}
    for variant in spec.VARIANTS[scale]:
        parameters = spec.parameters(spec.dimensions(scale, variant))
        found[variant] = weights.digest(name, parameters)
        print(f"{name} {scale} {variant}: {sum(parameter.size for parameter in parameters):,} parameters")
    return found


def main() -> None:
    """Write ``initial_parameters`` into the workloads' rules whose digests changed."""
    parser = argparse.ArgumentParser(description="The digests of the frozen initial weights.")
    parser.add_argument("--workload", default="", help="names, separated by commas (all)")
    chosen = parser.parse_args().workload
    for version, scale in SCALES.items():
        for name in chosen.split(",") if chosen else workloads.names():
            if not rules.load(version).has("workloads", name):
                print(f"{name} {scale}: the rules {version} have no file for it")
                continue
            held: dict[str, Any] = dict(rules.load(version).workload(name))
            wanted = {**held, "initial_parameters": held.get("initial_parameters", {}) | digests(name, scale)}
            if wanted != held:
                path = rules.SHIPPED.folder(version) / "workloads" / f"{name}.json"
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps(wanted, indent=2, ensure_ascii=False) + "\n", "utf-8")
                print(f"written: rules/{version}/workloads/{name}.json")


if __name__ == "__main__":
    main()
