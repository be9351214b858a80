"""The container image of a pair: reused where it was built before, else built on its base.

Two layers lie above the base: the locked requirements and the code. Their bytes depend only on the files in
them, so that every build of the same code gives the same layers (``rules/*/images/pairs``).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from suite import rules, workloads
from suite.containers.engines.attestation import EngineImage
from suite.containers.engines.docker_engine import DockerEngine
from suite.containers.engines.native import PROJECT
from suite.containers.images import client
from suite.containers.images.context import recipe_digest, stage
from suite.containers.images.errors import ImageProblem
from suite.containers.images.inside import code_digest
from suite.containers.images.lock import Base
from suite.containers.images.wheels import fetch as fetch_wheels
from suite.environments.environments import LARGE_BYTES, Progress
from suite.environments.errors import LargeDownload
from suite.log.canonical import sha256_hex

PREFIX = "suite."
EPOCH_S = "315532800"  # as in containers/bake.py
CACHE = PROJECT / ".cache"


def tag_of(workload: str, framework: str) -> str:
    """The local name of the pair's image for the current code."""
    return f"suite/{workload}-{framework}:{code_digest()[:12]}"


def requirements_of(base: Base) -> Path:
    """The lock that is installed on top of ``base``; ImageProblem where the entry or the file is missing."""
    path = PROJECT / "containers" / base.framework / (base.requirements or "")
    if not path.is_file():
        raise ImageProblem(
            f"{base.name}: expected a lock in containers/{base.framework}, found {base.requirements!r}: name "
            "the file in the entry's `requirements`"
        )
    return path


def label_of(
    workload: str,
    framework: str,
    base: Base,
    *,
    platform: str = "linux/amd64",
    rules_version: str = rules.LATEST,
    base_digest: str | None = None,
) -> dict[str, str]:
    """The content of the image's label file and of its labels (there with the prefix ``suite.``).

    ``base_digest``: the engine's digest of the base, used where the lock has none.
    """
    digest = base.platform(platform).manifest_digest or base.digest or base_digest
    return {
        "workload": workload,
        "framework": framework,
        "code_digest": code_digest(),
        "base_name": base.tagged,
        "base_digest": digest or "unknown",
        "requirements_digest": sha256_hex(requirements_of(base).read_bytes()),
        "rules_version": rules_version,
    }


def local_base(engine: DockerEngine, base: Base, platform: str = "linux/amd64") -> EngineImage | None:
    """The base image in this engine, None where the engine lacks it; never another image of the same name.

    The search uses repository digests, then the config digest, which an image from an archive keeps although
    it has no repository digest. It uses the tag only where the lock has no digest.
    """
    wanted = base.platform(platform)
    digests = (wanted.manifest_digest, base.index_digest, base.digest_of_unknown_kind)
    names = [f"{base.repository}@{digest}" for digest in digests if digest]
    names += [digest for digest in (wanted.config_digest, wanted.manifest_digest) if digest]
    if not base.digest:
        names = [base.tagged]
    for name in names:
        found = engine.image(name)
        if found is not None and found.platform == platform:
            return _require_locked_layers(found, base, platform)
    return None


def find(
    engine: DockerEngine, workload: str, framework: str, label: Mapping[str, str], local: EngineImage
) -> EngineImage | None:
    """The pair's image if it was built from the same code, requirements and recipe on the base ``local``."""
    found = engine.image(tag_of(workload, framework))
    if found is None or found.platform != local.platform:
        return None
    wanted = _expected_labels(label, _dockerfile(framework))
    fits = all(found.labels.get(name) == value for name, value in wanted.items())
    return found if fits and layers_above(found, local.diff_ids) is not None else None


def layers_above(image: EngineImage, base: tuple[str, ...]) -> tuple[str, ...] | None:
    """The layers of ``image`` above the layers ``base``; None where it does not begin with ``base``."""
    return image.diff_ids[len(base) :] if image.diff_ids[: len(base)] == base else None


def build(
    workload: str,
    framework: str,
    base: Base,
    *,
    platform: str = "linux/amd64",
    rules_version: str = rules.LATEST,
    cache: Path = CACHE,
    fetch: bool = False,
    fresh: bool = False,
    report: Progress,
) -> str:
    """The id of the pair's image, reused or built (``fresh``: always built).

    Pulls the base first where the engine lacks it; over 1 GB only with ``fetch``.

    Raises:
        ImageProblem: no builder, a failed pull or build, an image that differs from the lock's.
        EngineProblem: docker does not answer.
        EnvironmentMissing: a wheel that cannot be fetched.
        LargeDownload: over 1 GB and ``fetch`` is false.
    """
    _require_pair(workload, framework, base)
    engine = DockerEngine()
    tag = tag_of(workload, framework)
    local = local_base(engine, base, platform) or _pull_base(engine, base, platform, cache, fetch, report)
    digest = next((name.rpartition("@")[2] for name in local.repo_digests), None)
    label = label_of(
        workload, framework, base, platform=platform, rules_version=rules_version, base_digest=digest
    )
    if not fresh and (found := find(engine, workload, framework, label, local)):
        return found.id
    started = time.monotonic()
    report(f"building {tag} on {base.tagged}")
    _build(label, base, local, tag, platform=platform, cache=cache, fetch=fetch, fresh=fresh, report=report)
    built = engine.image(tag)
    if built is None or layers_above(built, local.diff_ids) is None:
        raise ImageProblem(
            f"{tag}: expected an image whose layers begin with those of {base.tagged}, found "
            f"{'none' if built is None else 'others'}: the builder keeps its images elsewhere; choose the "
            "default builder with `docker buildx use default`"
        )
    report(f"image {tag} is ready after {time.monotonic() - started:.0f} s")
    return built.id


def _build(
    label: Mapping[str, str],
    base: Base,
    local: EngineImage,
    tag: str,
    *,
    platform: str,
    cache: Path,
    fetch: bool,
    fresh: bool,
    report: Progress,
) -> None:
    lock = requirements_of(base)
    wheels = fetch_wheels(
        lock, base.contains.get("python"), platform=platform, cache=cache, allow_large=fetch, report=report
    )
    dockerfile = _dockerfile(base.framework)
    arguments = {name.upper(): value for name, value in label.items() if name != "framework"}
    arguments |= {"RECIPE_DIGEST": recipe_digest(dockerfile), "SOURCE_DATE_EPOCH": EPOCH_S}
    arguments["BASE"] = _from_reference(base, local)
    folder = cache / "images"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{tag.replace('/', '-').replace(':', '-')}.log"
    with tempfile.TemporaryDirectory(dir=folder, prefix="context-") as context:
        stage(Path(context), lock, wheels, label)
        if code_digest(Path(context) / "code") != label["code_digest"]:
            raise ImageProblem(
                f"{tag}: the suite's code changed during the build: run the same command again"
            )
        client.build(dockerfile, Path(context), tag, platform, arguments, log, no_cache=fresh)


def _from_reference(base: Base, local: EngineImage) -> str:
    """The reference for the build's FROM: the lock's, or a local name for an image from an archive.

    Builders ask the image registry for an id, and for a digest that no local repository has.
    """
    if not base.digest:
        return base.tagged
    for name in local.repo_digests:
        repository, _, digest = name.rpartition("@")
        if repository == base.repository and digest in _digests(base, local.platform):
            return f"{base.tagged}@{digest}"
    name = f"suite/base-{base.name}:{local.id.removeprefix('sha256:')[:12]}"
    client.tag(local.id, name)
    return name


def _digests(base: Base, platform: str) -> set[str]:
    known = (base.index_digest, base.digest_of_unknown_kind, base.platform(platform).manifest_digest)
    return {digest for digest in known if digest}


def _pull_base(
    engine: DockerEngine, base: Base, platform: str, cache: Path, fetch: bool, report: Progress
) -> EngineImage:
    size = base.platform(platform).compressed_bytes
    if not fetch and (size is None or size > LARGE_BYTES):
        if size is None:
            raise ImageProblem(
                f"the engine lacks {base.reference}, its size is unknown (NVIDIA's have over 10 GB), "
                "and downloads over 1 GB need consent: run the same command with FETCH=1"
            )
        raise LargeDownload(base.tagged, size, base.unpacked_bytes)
    report(f"pulling {base.reference}")
    client.pull(base.reference, platform, cache / "images" / f"pull-{base.name}.log")
    found = local_base(engine, base, platform)
    if found is None:
        raise ImageProblem(
            f"{base.reference} was pulled, but the engine has no image of that digest for {platform}: check "
            "that the entry of the lock lists this platform"
        )
    return found


def _require_locked_layers(found: EngineImage, base: Base, platform: str) -> EngineImage:
    wanted = base.platform(platform).diff_ids
    if wanted is not None and found.diff_ids != wanted:
        raise ImageProblem(
            f"{base.name}: expected the {len(wanted)} layers of the lock, found {len(found.diff_ids)} other "
            f"layers in the engine's {base.tagged}; remove it (docker image rm {found.id[:19]}) and run the "
            "same command again"
        )
    return found


def _require_pair(workload: str, framework: str, base: Base) -> None:
    pairs = workloads.frameworks(workload) if workload in workloads.names() else ()
    if framework not in pairs:
        raise ImageProblem(
            f"expected a pair of the suite, found {workload} in {framework}: the workloads are "
            f"{', '.join(workloads.names())}, each in {', '.join(workloads.frameworks('gnmt'))}"
        )
    if base.framework != framework:
        raise ImageProblem(f"expected a base image of {framework}, found {base.name} of {base.framework}")


def _expected_labels(label: Mapping[str, str], dockerfile: Path) -> dict[str, str]:
    return {PREFIX + name: value for name, value in label.items()} | {
        "recipe_digest": recipe_digest(dockerfile)
    }


def _dockerfile(framework: str) -> Path:
    return PROJECT / "containers" / framework / "Dockerfile"
