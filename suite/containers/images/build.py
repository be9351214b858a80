"""The image of a pair: found where it was built before, else built on its base from a staged context.

Two layers lie above the base: the locked requirements and the code. Their bytes depend on nothing else than
the files in them, so that anybody who builds the same gets the same layers (``rules/*/images/pairs``).
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
from suite.environments.environments import ASSUMED_BYTES_PER_S, ASSUMED_UNPACKED, LARGE_BYTES, Progress
from suite.environments.errors import LargeDownload
from suite.log.canonical import sha256_hex

PREFIX = "suite."
EPOCH_S = "315532800"  # as in containers/bake.py
CACHE = PROJECT / ".cache"


def tag_of(workload: str, framework: str) -> str:
    """The local name of the pair's image for the code as it is now."""
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
    """What the image says of itself, in its label file and as labels (with the prefix ``suite.``).

    ``base_digest``: what the engine calls the base; used where the lock has no digest of it.
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
    """The base image as this engine has it, None where it does not; never another one of the same name.

    Looked for by digest, then by what stays the same when an image is saved and loaded: its config digest
    (an image from an archive has no repository digest). By its tag only where the lock has no digest at all.
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
            return _checked(found, base, platform)
    return None


def find(
    engine: DockerEngine, workload: str, framework: str, label: Mapping[str, str], under: EngineImage
) -> EngineImage | None:
    """The pair's image if it was built before from the same code, requirements and recipe on ``under``."""
    found = engine.image(tag_of(workload, framework))
    if found is None or found.platform != under.platform:
        return None
    wanted = _labels(label, _dockerfile(framework))
    fits = all(found.labels.get(name) == value for name, value in wanted.items())
    return found if fits and above(found, under.diff_ids) is not None else None


def above(image: EngineImage, base: tuple[str, ...]) -> tuple[str, ...] | None:
    """The layers of ``image`` above the layers ``base``; None where it does not begin with those."""
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
    say: Progress,
) -> str:
    """The id of the pair's image, which is found or built (``fresh``: built, whatever there is).

    Pulls the base first where the engine does not have it; over 1 GB only with ``fetch``.

    Raises:
        ImageProblem: no builder, a failed pull or build, another image than the lock's.
        EngineProblem: no docker that answers.
        EnvironmentMissing: a wheel that cannot be fetched.
        LargeDownload: over 1 GB and ``fetch`` is false.
    """
    _known(workload, framework, base)
    engine = DockerEngine()
    tag = tag_of(workload, framework)
    under = local_base(engine, base, platform) or _pulled(engine, base, platform, cache, fetch, say)
    loose = next((name.rpartition("@")[2] for name in under.repo_digests), None)
    label = label_of(
        workload, framework, base, platform=platform, rules_version=rules_version, base_digest=loose
    )
    if not fresh and (found := find(engine, workload, framework, label, under)):
        return found.id
    started = time.monotonic()
    say(f"building {tag} on {base.tagged}")
    _build(label, base, under, tag, platform=platform, cache=cache, fetch=fetch, fresh=fresh, say=say)
    built = engine.image(tag)
    if built is None or above(built, under.diff_ids) is None:
        raise ImageProblem(
            f"{tag}: expected an image whose layers begin with those of {base.tagged}, found "
            f"{'none' if built is None else 'others'}: the builder keeps its images elsewhere; choose the "
            "default one with `docker buildx use default`"
        )
    say(f"image {tag} is ready after {time.monotonic() - started:.0f} s")
    return built.id


def _build(
    label: Mapping[str, str],
    base: Base,
    under: EngineImage,
    tag: str,
    *,
    platform: str,
    cache: Path,
    fetch: bool,
    fresh: bool,
    say: Progress,
) -> None:
    lock = requirements_of(base)
    wheels = fetch_wheels(
        lock, base.contains.get("python"), platform=platform, cache=cache, allow_large=fetch, say=say
    )
    dockerfile = _dockerfile(base.framework)
    arguments = {name.upper(): value for name, value in label.items() if name != "framework"}
    arguments |= {"RECIPE_DIGEST": recipe_digest(dockerfile), "SOURCE_DATE_EPOCH": EPOCH_S}
    arguments["BASE"] = _from(base, under)
    folder = cache / "images"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{tag.replace('/', '-').replace(':', '-')}.log"
    with tempfile.TemporaryDirectory(dir=folder, prefix="context-") as context:
        stage(Path(context), lock, wheels, label)
        if code_digest(Path(context) / "code") != label["code_digest"]:
            raise ImageProblem(f"{tag}: the suite's code changed while it was staged: run the same again")
        client.build(dockerfile, Path(context), tag, platform, arguments, log, no_cache=fresh)


def _from(base: Base, under: EngineImage) -> str:
    """What the build's FROM names: the lock's reference, or a local name for an image from an archive.

    Builders ask the registry for an id, and for a digest that no repository here has.
    """
    if not base.digest:
        return base.tagged
    for name in under.repo_digests:
        repository, _, digest = name.rpartition("@")
        if repository == base.repository and digest in _digests(base, under.platform):
            return f"{base.tagged}@{digest}"
    local = f"suite/base-{base.name}:{under.id.removeprefix('sha256:')[:12]}"
    client.tag(under.id, local)
    return local


def _digests(base: Base, platform: str) -> set[str]:
    known = (base.index_digest, base.digest_of_unknown_kind, base.platform(platform).manifest_digest)
    return {digest for digest in known if digest}


def _pulled(
    engine: DockerEngine, base: Base, platform: str, cache: Path, fetch: bool, say: Progress
) -> EngineImage:
    size = base.platform(platform).compressed_bytes
    if not fetch and (size is None or size > LARGE_BYTES):
        if size is None:
            raise ImageProblem(
                f"{base.reference} is not here and its size is not known (NVIDIA's are 10 GB and more), and "
                "nothing large is fetched unasked; to go on: the same command with FETCH=1"
            )
        disk = base.unpacked_bytes or round(size * ASSUMED_UNPACKED)
        command = "the same command with FETCH=1"
        raise LargeDownload(base.tagged, size, disk, round(size / ASSUMED_BYTES_PER_S), command)
    say(f"pulling {base.reference}")
    client.pull(base.reference, platform, cache / "images" / f"pull-{base.name}.log")
    found = local_base(engine, base, platform)
    if found is None:
        raise ImageProblem(
            f"{base.reference} was pulled, and the engine has no image of that digest for {platform}: "
            "does the entry of the lock name this platform?"
        )
    return found


def _checked(found: EngineImage, base: Base, platform: str) -> EngineImage:
    wanted = base.platform(platform).diff_ids
    if wanted is not None and found.diff_ids != wanted:
        raise ImageProblem(
            f"{base.name}: the engine's {base.tagged} has {len(found.diff_ids)} layers that are not the "
            f"{len(wanted)} of the lock; remove it (docker image rm {found.id[:19]}) and run this again"
        )
    return found


def _known(workload: str, framework: str, base: Base) -> None:
    pairs = workloads.frameworks(workload) if workload in workloads.names() else ()
    if framework not in pairs:
        raise ImageProblem(
            f"expected a pair of the suite, found {workload} in {framework}: "
            f"there are {', '.join(workloads.names())}, each in {', '.join(workloads.frameworks('gnmt'))}"
        )
    if base.framework != framework:
        raise ImageProblem(f"expected a base image of {framework}, found {base.name} of {base.framework}")


def _labels(label: Mapping[str, str], dockerfile: Path) -> dict[str, str]:
    return {PREFIX + name: value for name, value in label.items()} | {
        "recipe_digest": recipe_digest(dockerfile)
    }


def _dockerfile(framework: str) -> Path:
    return PROJECT / "containers" / framework / "Dockerfile"
