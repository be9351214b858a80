"""Publishing a pair: its layers above the base, written where the checker looks for them."""

from __future__ import annotations

import json
from pathlib import Path

from suite import rules
from suite.containers.engines.attestation import EngineImage
from suite.containers.images.build import PREFIX, above, label_of
from suite.containers.images.errors import ImageProblem
from suite.containers.images.lock import Base, replace_text


def publish(version: str, workload: str, framework: str, base: Base, image: EngineImage) -> Path:
    """Write ``rules/<version>/images/pairs/<workload>-<framework>-<code digest>.json`` from a built image.

    ImageProblem where the image is not the pair's for the code as it is now, or the lock does not know the
    layers of ``base``, or the image does not begin with them.
    """
    layers = base.platform(image.platform).diff_ids
    if layers is None:
        raise ImageProblem(
            f"{base.name}: its layers for {image.platform} are not in the lock, so what lies above them "
            f"cannot be published; `python -m suite image lock {base.name}` reads them from the registry"
        )
    own = above(image, layers)
    if not own:
        found = "other layers" if own is None else "nothing above them"
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
        "layers": list(own),
    }
    folder = rules.load(version).images_folder / "pairs"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{workload}-{framework}-{wanted['code_digest'][:12]}.json"
    replace_text(target, json.dumps(entry, indent=2) + "\n")
    return target
