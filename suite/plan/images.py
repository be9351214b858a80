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
class Chosen:
    """What the engine starts, and what the header says of it. ``code``: mounted, where not in the image."""

    start: str
    header: Mapping[str, Any]
    code: Path | None


def prepare_image(
    plan: Plan, custom: CustomCode, bundle: Bundle | None, say: Say
) -> tuple[Mapping[str, Any], ContainerWorkers]:
    """What the header says of the container image of ``plan``, and what starts workers in it. A Refusal."""
    plan.engine.sweep()
    try:
        chosen = _custom_image(plan, say) if plan.settings.image else _image_of_the_lock(plan, bundle, say)
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
        devices=plan.device_ids,
        limits=plan.limits,
        python=plan.settings.python or "python3",
        code=chosen.code,
        pair=custom.pair,
        user=worker_user(),
    )
    return chosen.header, workers


def before_pulling(plan: Plan) -> str | None:
    """Why the image of the lock would be refused before anything is pulled, in one sentence; None: not."""
    try:
        base = lock.base_for(plan.rules_version, plan.key.framework)
    except lock.LockProblem as error:
        return str(error)
    if plan.division == "closed" and (reason := base.why_not_closed) is not None:
        return f"closed takes an image by a digest that was read back from its image registry; {reason}"
    gpus = [GpuFacts(gpu.name, gpu.capability or None) for gpu in plan.gpus]
    by_file = plan.engine.name in SUFFIXES or plan.settings.bundle is not None
    here = by_file or build.local_base(plan.engine, base, PLATFORM) is not None
    free = None if here else docker_free_bytes()
    return refusal(base, platform=PLATFORM, gpus=gpus, driver=plan.driver, free_bytes=free)


def describe(plan: Plan) -> str:
    """For people, before anything is done: which image, whether it is here, and what fetching it costs."""
    if plan.settings.image is not None:
        here = plan.engine.name not in SUFFIXES and plan.engine.image(plan.settings.image) is not None
        return f"{plan.settings.image}: your custom image{', here' if here else ', will be pulled'}"
    base = lock.base_for(plan.rules_version, plan.key.framework)
    if plan.engine.name in SUFFIXES:
        return f"{base.tagged} as a file, the worker's code mounted"
    size = base.platform(PLATFORM).compressed_bytes
    fetched = "size not recorded" if size is None else f"{size / 1e9:.1f} GB"
    here = build.local_base(plan.engine, base, PLATFORM) is not None
    state = "is here" if here else f"will be pulled ({fetched})"
    if plan.engine.name != "docker":
        return f"{base.tagged} {state}, the worker's code mounted"
    tag = build.tag_of(plan.key.workload, plan.key.framework)
    built = "is here" if plan.engine.image(tag) is not None else "will be built"
    return f"{tag} {built}, on {base.tagged}, which {state}"


def foreseen(plan: Plan) -> Mapping[str, Any]:
    """What the header will say of the image if it is the published one; without layers where none are."""
    if plan.settings.image is not None:
        repository, _, digest = plan.settings.image.partition("@")
        return {**_nothing_known(repository), "manifest_digest": digest}
    base = lock.base_for(plan.rules_version, plan.key.framework)
    pair = plan.engine.name == "docker"
    form = "pair" if pair else "base"
    requirements = sha256_hex(build.requirements_of(base).read_bytes()) if pair else None
    header = _header(form, base, None, inside.code_digest(), requirements)
    above = rules.load(plan.rules_version).published(
        plan.key.workload, plan.key.framework, inside.code_digest(), PLATFORM, base.name
    )
    if pair and header["diff_ids"] is not None and above is not None:
        return {**header, "config_digest": None, "diff_ids": [*header["diff_ids"], *above]}
    return header


def _nothing_known(name: str) -> dict[str, Any]:
    unknown = ("lock", "manifest_digest", "index_digest", "config_digest", "diff_ids", "requirements_digest")
    known = {"form": "base", "name": name, "platform": PLATFORM, "code_digest": inside.code_digest()}
    return {**dict.fromkeys(unknown), **known}


def _image_of_the_lock(plan: Plan, bundle: Bundle | None, say: Say) -> Chosen:
    if (refused := before_pulling(plan)) is not None:
        raise (RuleProblem if plan.division == "closed" else Unsupported)(f"image: {refused}")
    base = lock.base_for(plan.rules_version, plan.key.framework)
    if plan.engine.name in SUFFIXES:
        return _file_of(plan, base, bundle, say)
    if plan.engine.name != "docker" and bundle is None:
        return _base_of(plan, base, say)
    found = _present(plan, _built(plan, base, say) if bundle is None else _loaded(plan, base, bundle, say))
    label = {name.removeprefix(build.PREFIX): value for name, value in found.labels.items()}
    digests = (label["code_digest"], label["requirements_digest"])
    return Chosen(found.id, _header("pair", base, found, *digests), None)


def _built(plan: Plan, base: lock.Base, say: Say) -> str:
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


def _loaded(plan: Plan, base: lock.Base, bundle: Bundle, say: Say) -> str:
    """The pair's image out of the bundle; the checker holds its layers to the lock, as any other's."""
    bundle.require_base(base.name)
    return bundle.load_image(plan.engine, say)


def _base_of(plan: Plan, base: lock.Base, say: Say) -> Chosen:
    """The unmodified base image in an engine that builds nothing for us, the worker's code mounted."""
    _pull(plan, base.reference, base.platform(PLATFORM).compressed_bytes, say)
    found = _present(plan, base.reference)
    return Chosen(found.id, _header("base", base, found, inside.code_digest(), None), PROJECT)


def _header(
    form: str, base: lock.Base, found: EngineImage | None, code_digest: str, requirements_digest: str | None
) -> dict[str, Any]:
    """What the log's header says of the image; ``found`` is None for a file, whose layers the lock knows."""
    locked = base.platform(PLATFORM)
    config, layers = (locked.config_digest, locked.diff_ids)
    if found is not None:
        config, layers = found.config_digest, found.diff_ids
    return {
        "form": form,
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


def _file_of(plan: Plan, base: lock.Base, bundle: Bundle | None, say: Say) -> Chosen:
    """The unmodified base image as a file, the worker's code mounted: as good where no engine is."""
    here = base.platform(PLATFORM)
    digest = here.manifest_digest or base.digest
    if digest is None:
        raise ImageProblem(
            f"{base.tagged}: expected a digest to import it by, found none in the lock: `make image-lock`"
        )
    target = image_file(plan.settings.cache_dir, plan.engine.name, base.name, digest)
    if not target.is_file() or recorded_import(target) is None:
        _make_file(plan, base, bundle, f"{base.repository}@{digest}", target, say)
    return Chosen(str(target), _header("base", base, None, inside.code_digest(), None), PROJECT)


def _make_file(
    plan: Plan, base: lock.Base, bundle: Bundle | None, reference: str, target: Path, say: Say
) -> None:
    """Have the base as a file at ``target``: out of the bundle, or imported by its digest."""
    if bundle is not None:
        bundle.require_base(base.name)
        bundle.copy_image(plan.engine.name, target, say)
        return
    _consent(plan, base.tagged, base.platform(PLATFORM).compressed_bytes)
    say(f"importing {base.tagged} with {plan.engine.name}")
    import_image(plan.engine.name, plan.engine.version, reference, target)


def image_file(cache: Path, tool: str, name: str, digest: str) -> Path:
    """Where the file of an image lies: named after the lock's entry and the digest that it came from."""
    return cache / "images" / f"{name}-{digest.removeprefix('sha256:')[:12]}{SUFFIXES[tool]}"


def _custom_image(plan: Plan, say: Say) -> Chosen:
    """A custom image by digest, the worker's code mounted into it."""
    reference = str(plan.settings.image)
    repository, _, digest = reference.partition("@")
    if plan.engine.name in SUFFIXES:
        target = image_file(plan.settings.cache_dir, plan.engine.name, "custom", digest)
        if not target.is_file():
            _consent(plan, reference, None)
            import_image(plan.engine.name, plan.engine.version, reference, target)
        start, found = str(target), None
    else:
        _pull(plan, reference, None, say)
        found = _present(plan, reference)
        start = found.id
    header = {**_nothing_known(repository), "manifest_digest": digest}
    if found is not None:
        layers = list(found.diff_ids)
        header |= {"platform": found.platform, "config_digest": found.config_digest, "diff_ids": layers}
    return Chosen(start, header, PROJECT)


def _present(plan: Plan, reference: str) -> EngineImage:
    found: EngineImage | None = plan.engine.image(reference)
    if found is None:
        raise ImageProblem(f"{reference}: expected an image of this {plan.engine.name}, found none")
    return found


def _pull(plan: Plan, reference: str, compressed_bytes: int | None, say: Say) -> None:
    """Have ``reference`` in the engine, fetching it where it is not."""
    if plan.engine.image(reference) is not None:
        return
    _consent(plan, reference, compressed_bytes)
    say(f"pulling {reference}")
    client = shutil.which(plan.engine.name) or plan.engine.name
    done = subprocess.run(
        [client, "pull", "--quiet", reference], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        told = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        raise ImageProblem(
            f"{reference}: {plan.engine.name} cannot pull it ({told}); without a way to the registry: "
            "make fetch on a machine with one, then make run BUNDLE=..."
        )


def _consent(plan: Plan, what: str, compressed_bytes: int | None) -> None:
    """Nothing over 1 GB, or of unknown size, is fetched unasked."""
    if plan.settings.fetch or (compressed_bytes is not None and compressed_bytes < _LARGE_BYTES):
        return
    size = "of unknown size" if compressed_bytes is None else f"of {compressed_bytes / 1e9:.1f} GB"
    raise EnvironmentProblem(
        f"the image {what} is not here and is a download {size}: give FETCH=1 (fetch=true), or RUNTIME=native"
    )
