"""``python -m suite image``: the container images of the pairs, and the lock of their base images.

Exit codes: 0 done, or equal; 1 different; 2 an image registry that does not answer, or wrong usage; 13
something that a build needs is missing; 15 a path that cannot be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from suite import rules, workloads
from suite.cli.guard import progress, relative
from suite.containers.engines.native import PROJECT
from suite.containers.images import listing, lock, pins
from suite.containers.images.lock import Base, LockProblem
from suite.plan.errors import did_you_mean

if TYPE_CHECKING:
    from suite.containers.images.image_registry import ImageRegistryProblem

DIFFERENT, ERROR, MISSING = 1, 2, 13


def show(args: argparse.Namespace) -> int:
    """Show each pair's base image."""
    from suite.containers.images.inside import code_digest

    ran = where_pairs_ran(PROJECT / "submissions")
    found = listing.collect(args.rules, args.platform, code_digest(), ran)
    if args.format == "text":
        listing.print_text(found)
    else:
        print(listing.to_json(found) if args.format == "json" else listing.to_markdown(found))
    return 0


def where_pairs_ran(submissions: Path) -> list[listing.RanOn]:
    """The devices and base images of the accepted results in ``submissions``, by framework."""
    from suite.compare.result_row import checked_rows

    found: dict[tuple[str, str, str], list[str]] = {}
    for row in checked_rows([submissions]):
        if row.status in ("accepted", "flagged"):
            where = row.key["framework"], row.device, row.image.name or "native"
            found.setdefault(where, []).append(row.key["workload"])
    return [
        listing.RanOn(*where, len(names), tuple(sorted(set(names)))) for where, names in sorted(found.items())
    ]


# The lock


def write(args: argparse.Namespace) -> int:
    """Read every digest from the image registry and write the lock."""
    folder = rules.load(args.rules).images_folder
    root = PROJECT if args.rules == rules.LATEST else None
    return write_lock(folder, args.name, repin=args.repin, root=root)


def write_lock(folder: Path, names: Iterable[str], *, repin: bool, root: Path | None) -> int:
    """Resolve the entries in ``folder`` and write them; with ``root``, the Dockerfiles' pins there too."""
    from suite.containers.images.resolve import resolve

    changed: list[Path] = []

    def one(base: Base) -> list[str]:
        found = resolve(base, repin=repin)
        if found != base:
            changed.append(lock.write(folder, found))
        if root is not None and found.current and (path := pins.rewrite(found, root)):
            changed.append(path)
        platforms = ", ".join(found.platforms)
        print(f"{base.name}: {'unchanged' if found == base else 'resolved'}, {found.reference} ({platforms})")
        return []

    code = _each(_chosen(folder, names), one)
    if changed:
        print(f"written: {', '.join(str(relative(path, PROJECT)) for path in changed)}")
        if root is not None:
            print(f"a patch to propose: git diff {relative(folder, PROJECT)} containers")
    return code


def verify(args: argparse.Namespace) -> int:
    """Compare the lock with the image registry."""
    folder = rules.load(args.rules).images_folder
    root = PROJECT if args.rules == rules.LATEST else None
    return check_lock(folder, args.name, root=root)


def check_lock(folder: Path, names: Iterable[str], *, root: Path | None) -> int:
    """Compare the entries in ``folder`` with their registries; with ``root``, the Dockerfiles' pins too."""
    from suite.containers.images.resolve import check

    def one(base: Base) -> list[str]:
        pinned = pins.difference(base, root) if root is not None and base.current else None
        found = [*([pinned] if pinned else []), *check(base)]
        if not found:
            print(f"{base.name}: equal to the image registry, {base.reference}")
        return found

    return _each(_chosen(folder, names), one)


def _each(bases: Iterable[Base], one: Callable[[Base], list[str]]) -> int:
    """Call ``one`` for every base and print the differences; a failure of one does not stop the others."""
    from suite.containers.images.image_registry import ImageRegistryProblem, ImageRegistryUnreachable
    from suite.containers.images.resolve import LockMismatch

    codes = {0}
    for base in bases:
        problem: ImageRegistryProblem | None = None
        try:
            differences = one(base)
        except LockMismatch as moved:
            differences = [
                *moved.differences,
                "nothing was written; --repin takes the values of the image registry",
            ]
        except ImageRegistryProblem as error:
            problem, differences = error, [str(error)]
        for line in differences:
            print(f"{base.name}: {line}", file=sys.stderr)
        if differences:
            codes.add(ERROR if isinstance(problem, ImageRegistryUnreachable) else DIFFERENT)
    return DIFFERENT if DIFFERENT in codes else max(codes)


def _chosen(folder: Path, names: Iterable[str]) -> list[Base]:
    known = lock.read_folder(folder)
    wanted = list(names)
    for name in wanted:
        if name not in known:
            raise LockProblem(
                f"{folder}: expected one of {', '.join(known) or 'no entry'}, found {name!r}"
                f"{did_you_mean(name, known)}"
            )
    return [known[name] for name in wanted] or [base for base in known.values() if base.status != "archived"]


# The images


def _refuse_unfit(base: lock.Base, platform: str) -> None:
    """ImageProblem where ``base`` cannot run on this machine's GPUs and driver, or fit its disk."""
    from suite.containers.images.errors import ImageProblem
    from suite.containers.images.preflight import GpuFacts, docker_free_bytes, refusal
    from suite.plan.machine import detect_machine

    machine = detect_machine()
    gpus = [GpuFacts(gpu.name, gpu.capability or None) for gpu in machine.gpus]
    free = docker_free_bytes()
    why_not = refusal(base, platform=platform, gpus=gpus, driver=machine.driver, free_bytes=free)
    if why_not is not None:
        raise ImageProblem(why_not)


def build(args: argparse.Namespace) -> int:
    """Build the images of pairs."""
    from suite.containers.engines.docker_engine import DockerEngine
    from suite.containers.images import build as building

    def one(workload: str, framework: str) -> str:
        base = lock.base_for(args.rules, framework)
        if building.local_base(DockerEngine(), base, args.platform) is None:
            _refuse_unfit(base, args.platform)
        image = building.build(
            workload,
            framework,
            base,
            platform=args.platform,
            rules_version=args.rules,
            cache=args.cache_dir or building.CACHE,
            fetch=args.fetch,
            report=progress,
        )
        return f"{building.tag_of(workload, framework)} is {image}"

    return _each_pair(args, one)


def publish(args: argparse.Namespace) -> int:
    """Record the layers of the images of pairs."""
    from suite.containers.engines.docker_engine import DockerEngine
    from suite.containers.images import build as building
    from suite.containers.images import publish as publishing
    from suite.containers.images.errors import ImageProblem

    def one(workload: str, framework: str) -> str:
        tag = building.tag_of(workload, framework)
        image = DockerEngine().image(tag)
        if image is None or image.platform != args.platform:
            raise ImageProblem(
                f"{tag}: expected an image for {args.platform}, found {image.platform if image else 'none'}; "
                f"`python -m suite image build --rules {args.rules}` makes it"
            )
        path = publishing.publish(
            args.rules, workload, framework, lock.base_for(args.rules, framework), image
        )
        return f"written: {relative(path, PROJECT)}"

    return _each_pair(args, one)


def _each_pair(args: argparse.Namespace, one: Callable[[str, str], str]) -> int:
    """Call ``one`` for every chosen pair; a failure of one does not stop the others."""
    from suite.containers.engines.attestation import EngineProblem
    from suite.containers.images.errors import ImageProblem
    from suite.environments.errors import EnvironmentMissing, LargeDownload

    code = 0
    for workload, framework in _pairs(args.workload, args.framework):
        try:
            print(f"{workload}-{framework}: {one(workload, framework)}")
        except (ImageProblem, EnvironmentMissing, LargeDownload) as error:
            print(f"{workload}-{framework}: {error}", file=sys.stderr)
            code = MISSING
        except EngineProblem as error:
            print(f"image: {error}", file=sys.stderr)
            return MISSING
    return code


def _pairs(workload: str | None, framework: str | None) -> list[tuple[str, str]]:
    found = [
        (one, other)
        for one in ([workload] if workload else workloads.names())
        for other in workloads.frameworks(one)
        if framework in (None, other)
    ]
    if not found:
        known = workloads.frameworks(workload or workloads.names()[0])
        raise LockProblem(f"framework: expected one of {', '.join(known)}, found {framework!r}")
    return found
