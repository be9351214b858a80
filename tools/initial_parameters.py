"""Write the digests of the frozen initial weights into the rules: ``python -m tools.initial_parameters``.

Needs numpy only. The same bytes come out on every platform: another digest is a changed specification.
"""

from __future__ import annotations

import json

from suite import workloads
from suite.rules import places
from suite.workloads import specification, weights

SCALES = {"0.1": "reference", "practice": "mini"}


def main() -> None:
    """Fill ``initial_parameters`` of every workload file of the versions in work."""
    for version, scale in SCALES.items():
        for name in workloads.names():
            path = places.folder_of(version) / "workloads" / f"{name}.json"
            rules = json.loads(path.read_text("utf-8"))
            spec = specification(name)
            for variant in spec.VARIANTS[scale]:
                parameters = spec.parameters(spec.dimensions(scale, variant))
                rules["initial_parameters"][variant] = weights.digest(name, parameters)
                count = sum(parameter.size for parameter in parameters)
                print(f"{version} {name} {variant}: {count:,} parameters")
            path.write_text(json.dumps(rules, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
