"""Publish a pair: write its layers above the base where the checker reads them."""

from __future__ import annotations

import json
from pathlib import Path

from suite import rules
from suite.containers.engines.attestation import EngineImage
from suite.containers.images.build import PREFIX, label_of, layers_above
from suite.containers.images.errors import ImageProblem
from suite.containers.images.lock import Base, replace_text


def publish(version: str, workload: str, framework: str, base: Base, image: EngineImage) -> Path:
    """Write ``rules/<version>/images/pairs/<workload>-<framework>-<code digest>.json`` from a built image.

    Raises ImageProblem where the image was not built from the current code, or the lock does not know the
    layers of ``base``, or the image does not begin with them.
    """
    layers = base.platform(image.platform).diff_ids
    if layers is None:
        raise ImageProblem(
            f"{base.name}: the lock does not have its layers for {image.platform}, which a published image "
            f"needs; `python -m suite image lock {base.name}` reads them from the image registry"
        )
    added = layers_above(image, layers)
    if not added:
        found = "other layers" if added is None else "nothing above them"
        raise ImageProblem(
            f"{workload} in {framework}: expected an image that begins with the {len(layers)} layers of "
            f"{base.name} and adds to them, found {found}: build it anew on the locked base"
        )
    wanted = label_of(workload, framework, base, platform=image.platform, rules_version=version)
    for name, value in wanted.items():
        found = image.labels.get(PREFIX + name, "none")
        if found != value:
            raise ImageProblem(f"label {PREFIX}{name}: expected {value}, found {found}: build the image anew")
    entry = {
        "workload": workload,
        "framework": framework,
        "platform": image.platform,
        "base": base.name,
        "code_digest": wanted["code_digest"],
        "requirements_digest": wanted["requirements_digest"],
        "layers": list(added),
    }
    folder = rules.load(version).images_folder / "pairs"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{workload}-{framework}-{wanted['code_digest'][:12]}.json"
    replace_text(target, json.dumps(entry, indent=2) + "\n")
    return target
