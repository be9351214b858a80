"""From a plan to the container image that its workers run in: preflight, pull, build, header fields."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite import rules
from suite.containers.engines.attestation import EngineImage, EngineProblem
from suite.containers.engines.file_image import SUFFIXES, import_image, recorded_import
from suite.containers.engines.native import PROJECT
from suite.containers.engines.workers import ContainerWorkers, worker_user
from suite.containers.images import build, inside, lock
from suite.containers.images.bundle import Bundle
from suite.containers.images.bundle_manifest import BundleProblem
from suite.containers.images.errors import ImageProblem
from suite.containers.images.preflight import GpuFacts, docker_free_bytes, refusal
from suite.environments.errors import EnvironmentMissing, LargeDownload
from suite.log.canonical import sha256_hex
from suite.plan.custom import CustomCode
from suite.plan.errors import EnvironmentProblem, RuleProblem, Unsupported
from suite.plan.plan import Plan

PLATFORM = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}.get(platform.machine(), "linux/unknown")
_LARGE_BYTES = 1_000_000_000
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ChosenImage:
    """The image that the engine starts, its part of the header, and the ``code`` to mount (None: none)."""

    start: str
    header: Mapping[str, Any]
    code: Path | None


def prepare_image(
    plan: Plan, custom: CustomCode, bundle: Bundle | None, say: Say
) -> tuple[Mapping[str, Any], ContainerWorkers]:
    """The header's ``image`` for ``plan``, and the object that starts workers in it. Raises a Refusal."""
    try:
        plan.engine.sweep()
        chosen = _custom_image(plan, say) if plan.settings.image else _locked_image(plan, bundle, say)
    except (BundleProblem, ImageProblem, EngineProblem, EnvironmentMissing, LargeDownload) as error:
        raise EnvironmentProblem(str(error)) from error
    except lock.LockProblem as error:
        raise RuleProblem(str(error)) from error
    workers = ContainerWorkers(
        engine=plan.engine,
        image=chosen.start,
        run_id=plan.run_id,
        threads=plan.threads,
        wait_policy=plan.settings.wait_policy,
        variables=plan.variables,
        devices=plan.device_ids,
        limits=plan.limits,
        python=plan.settings.python or "python3",
        code=chosen.code,
        pair=custom.pair,
        user=worker_user(),
        host_network=plan.settings.nodes > 1,
    )
    return chosen.header, workers


def refusal_before_pulling(plan: Plan) -> str | None:
    """Why the locked image cannot be used, in one sentence, before anything is pulled; None: it can."""
    try:
        base = lock.base_for(plan.rules_version, plan.key.framework)
    except lock.LockProblem as error:
        return str(error)
    if plan.division == "closed" and base.why_not_closed is not None:
        return f"closed requires a digest that was read back from the image registry; {base.why_not_closed}"
    gpus = [GpuFacts(gpu.name, gpu.capability or None) for gpu in plan.gpus]
    by_file = plan.engine.name in SUFFIXES or plan.settings.bundle is not None
    present = by_file or build.local_base(plan.engine, base, PLATFORM) is not None
    free = None if present else docker_free_bytes()
    return refusal(base, platform=PLATFORM, gpus=gpus, driver=plan.driver, free_bytes=free)


def describe(plan: Plan) -> str:
    """Text for a dry run: which image, whether it is on this machine, and the size of the download."""
    if plan.settings.image is not None:
        present = plan.engine.name not in SUFFIXES and plan.engine.image(plan.settings.image) is not None
        return f"{plan.settings.image}: custom image, {'is present' if present else 'will be pulled'}"
    base = lock.base_for(plan.rules_version, plan.key.framework)
    if plan.engine.name in SUFFIXES:
        return f"{base.tagged} as a file, the worker's code mounted"
    size = base.platform(PLATFORM).compressed_bytes
    fetched = "size not recorded" if size is None else f"{size / 1e9:.1f} GB"
    present = build.local_base(plan.engine, base, PLATFORM) is not None
    state = "is present" if present else f"will be pulled ({fetched})"
    if plan.engine.name != "docker":
        return f"{base.tagged} {state}, the worker's code mounted"
    tag = build.tag_of(plan.key.workload, plan.key.framework)
    built = "is present" if plan.engine.image(tag) is not None else "will be built"
    return f"{tag} {built}, on {base.tagged}, which {state}"


def expected_image_header(plan: Plan) -> Mapping[str, Any]:
    """The header's ``image`` if the published image is used; without layers where none are published."""
    if plan.settings.image is not None:
        repository, _, digest = plan.settings.image.partition("@")
        return {**_unlocked_header(repository), "manifest_digest": digest}
    base = lock.base_for(plan.rules_version, plan.key.framework)
    pair = plan.engine.name == "docker"
    requirements = sha256_hex(build.requirements_of(base).read_bytes()) if pair else None
    header = _image_header("pair" if pair else "base", base, None, inside.code_digest(), requirements)
    above = rules.load(plan.rules_version).published(
        plan.key.workload, plan.key.framework, inside.code_digest(), PLATFORM, base.name
    )
    if pair and header["diff_ids"] is not None and above is not None:
        return {**header, "config_digest": None, "diff_ids": [*header["diff_ids"], *above]}
    return header


def _unlocked_header(name: str) -> dict[str, Any]:
    unknown = ("lock", "manifest_digest", "index_digest", "config_digest", "diff_ids", "requirements_digest")
    known = {"form": "base", "name": name, "platform": PLATFORM, "code_digest": inside.code_digest()}
    return {**dict.fromkeys(unknown), **known}


def _locked_image(plan: Plan, bundle: Bundle | None, say: Say) -> ChosenImage:
    if (refused := refusal_before_pulling(plan)) is not None:
        raise (RuleProblem if plan.division == "closed" else Unsupported)(f"image: {refused}")
    base = lock.base_for(plan.rules_version, plan.key.framework)
    if plan.engine.name in SUFFIXES:
        return _file_image(plan, base, bundle, say)
    if plan.engine.name != "docker" and bundle is None:
        return _base_image(plan, base, say)
    found = _required_image(
        plan,
        _build_pair_image(plan, base, say) if bundle is None else _load_pair_image(plan, base, bundle, say),
    )
    label = {name.removeprefix(build.PREFIX): value for name, value in found.labels.items()}
    digests = (label["code_digest"], label["requirements_digest"])
    return ChosenImage(found.id, _image_header("pair", base, found, *digests), None)


def _build_pair_image(plan: Plan, base: lock.Base, say: Say) -> str:
    return build.build(
        plan.key.workload,
        plan.key.framework,
        base,
        platform=PLATFORM,
        rules_version=plan.rules_version,
        cache=plan.settings.cache_dir,
        fetch=plan.settings.fetch,
        report=say,
    )


def _load_pair_image(plan: Plan, base: lock.Base, bundle: Bundle, say: Say) -> str:
    """Load the pair's image from the bundle; the checker compares its layers with the lock."""
    bundle.require_base(base.name)
    return bundle.load_image(plan.engine, say)


def _base_image(plan: Plan, base: lock.Base, say: Say) -> ChosenImage:
    """The unmodified base image with the worker's code mounted, for engines that build no images."""
    _pull(plan, base.reference, base.platform(PLATFORM).compressed_bytes, say)
    found = _required_image(plan, base.reference)
    return ChosenImage(found.id, _image_header("base", base, found, inside.code_digest(), None), PROJECT)


def _image_header(
    kind: str, base: lock.Base, found: EngineImage | None, code_digest: str, requirements_digest: str | None
) -> dict[str, Any]:
    """The header's ``image``; ``found`` is None for an image file, whose layers are those of the lock."""
    locked = base.platform(PLATFORM)
    config, layers = (locked.config_digest, locked.diff_ids)
    if found is not None:
        config, layers = found.config_digest, found.diff_ids
    return {
        "form": kind,
        "name": base.tagged,
        "lock": base.name,
        "manifest_digest": locked.manifest_digest,
        "index_digest": base.index_digest,
        "platform": PLATFORM if found is None else found.platform,
        "config_digest": config,
        "diff_ids": None if layers is None else list(layers),
        "code_digest": code_digest,
        "requirements_digest": requirements_digest,
    }


def _file_image(plan: Plan, base: lock.Base, bundle: Bundle | None, say: Say) -> ChosenImage:
    """The unmodified base image as a file, with the worker's code mounted."""
    digest = base.platform(PLATFORM).manifest_digest or base.digest
    if digest is None:
        raise ImageProblem(
            f"{base.tagged}: expected a digest to import it by, found none in the lock: `make image-lock`"
        )
    target = image_file(plan.settings.cache_dir, plan.engine.name, base.name, digest)
    if not target.is_file() or recorded_import(target) is None:
        _make_image_file(plan, base, bundle, f"{base.repository}@{digest}", target, say)
    return ChosenImage(str(target), _image_header("base", base, None, inside.code_digest(), None), PROJECT)


def _make_image_file(
    plan: Plan, base: lock.Base, bundle: Bundle | None, reference: str, target: Path, say: Say
) -> None:
    """Write the base image to ``target``: from the bundle, or imported by its digest."""
    if bundle is not None:
        bundle.require_base(base.name)
        bundle.copy_image(plan.engine.name, target, say)
        return
    _require_consent(plan, base.tagged, base.platform(PLATFORM).compressed_bytes)
    say(f"importing {base.tagged} with {plan.engine.name}")
    import_image(plan.engine.name, plan.engine.version, reference, target)


def image_file(cache: Path, tool: str, name: str, digest: str) -> Path:
    """The path of an image file: named after the lock entry and the digest of its source."""
    return cache / "images" / f"{name}-{digest.removeprefix('sha256:')[:12]}{SUFFIXES[tool]}"


def _custom_image(plan: Plan, say: Say) -> ChosenImage:
    """A custom image by digest, with the worker's code mounted."""
    reference = str(plan.settings.image)
    repository, _, digest = reference.partition("@")
    if plan.engine.name in SUFFIXES:
        target = image_file(plan.settings.cache_dir, plan.engine.name, "custom", digest)
        if not target.is_file():
            _require_consent(plan, reference, None)
            import_image(plan.engine.name, plan.engine.version, reference, target)
        start, found = str(target), None
    else:
        _pull(plan, reference, None, say)
        found = _required_image(plan, reference)
        start = found.id
    header = {**_unlocked_header(repository), "manifest_digest": digest}
    if found is not None:
        layers = list(found.diff_ids)
        header |= {"platform": found.platform, "config_digest": found.config_digest, "diff_ids": layers}
    return ChosenImage(start, header, PROJECT)


def _required_image(plan: Plan, reference: str) -> EngineImage:
    found: EngineImage | None = plan.engine.image(reference)
    if found is None:
        raise ImageProblem(f"{reference}: expected an image in the store of {plan.engine.name}, found none")
    return found


def _pull(plan: Plan, reference: str, compressed_bytes: int | None, say: Say) -> None:
    """Pull ``reference`` unless the engine has it."""
    if plan.engine.image(reference) is not None:
        return
    _require_consent(plan, reference, compressed_bytes)
    say(f"pulling {reference}")
    client = shutil.which(plan.engine.name) or plan.engine.name
    done = subprocess.run(
        [client, "pull", "--quiet", reference], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        raise ImageProblem(
            f"{reference}: {plan.engine.name} cannot pull it ({why}); if this machine cannot reach the image "
            "registry: make fetch on a machine that can, then make run BUNDLE=..."
        )


def _require_consent(plan: Plan, reference: str, compressed_bytes: int | None) -> None:
    """EnvironmentProblem for a download over 1 GB, or of unknown size, without FETCH=1."""
    if plan.settings.fetch or (compressed_bytes is not None and compressed_bytes < _LARGE_BYTES):
        return
    size = "of unknown size" if compressed_bytes is None else f"of {compressed_bytes / 1e9:.1f} GB"
    raise EnvironmentProblem(
        f"the image {reference} is not on this machine and is a download {size}: set FETCH=1 "
        "(fetch=true), or RUNTIME=native"
    )
