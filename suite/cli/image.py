"""``python -m suite image``: the pairs' images and the lock of what they are built on."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from suite import rules, workloads
from suite.images import listing, lock, pins
from suite.images.lock import PLATFORMS, Base, LockProblem
from suite.runtime.native import PROJECT

if TYPE_CHECKING:
    from suite.images.registry import RegistryProblem

DIFFERENT, ERROR, MISSING, STORAGE = 1, 2, 13, 15
VERSIONS = tuple(version for version in rules.VERSIONS if version != "0.1")  # which knows no image


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands and their arguments."""
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=text, description=text)
        found.add_argument("--rules", choices=VERSIONS, default=rules.LATEST, help="whose lock (%(default)s)")
        return found

    shown = command("list", "show each pair's base image, what it needs, and whether closed accepts it")
    shown.add_argument("--format", choices=listing.FORMATS, default="text")
    shown.add_argument("--platform", choices=PLATFORMS, default=PLATFORMS[0])
    text = "read every digest from the registry and write the lock"
    for name, words in (("lock", text), ("lock-check", "compare lock and registry, write nothing")):
        found = command(name, words)
        found.add_argument("name", nargs="*", help="which entries (default: all that are not archived)")
        if name == "lock":
            found.add_argument(
                "--repin", action="store_true", help="replace pinned values where the registry has others"
            )
    for name, words in (("build", "build"), ("publish", "write down the layers of")):
        found = command(name, f"{words} the images of pairs, from their Dockerfile and the lock")
        found.add_argument("--workload", choices=workloads.names(), help="this one alone")
        found.add_argument("--framework", help="this one alone")
        found.add_argument("--platform", choices=PLATFORMS, default=PLATFORMS[0])
        if name == "build":
            found.add_argument("--fetch", action="store_true", help="allow downloads over 1 GB")
            found.add_argument("--cache", type=Path, metavar="DIR", help="where wheels and logs are kept")


def main(args: argparse.Namespace) -> int:
    """Do what ``args.command`` says.

    0 is done, or equal; 1 is different; 2 is a registry that does not answer, or wrong usage; 13 is
    something that a build needs and has not; 15 is a place that cannot be written.
    """
    commands = {"list": _list, "lock": _lock, "lock-check": _lock_check, "build": _build, "publish": _publish}
    try:
        return commands[args.command](args)
    except (LockProblem, rules.MalformedRules) as error:
        print(f"image: {error}", file=sys.stderr)
        return ERROR
    except BrokenPipeError:
        raise  # whoever read went away, which is no fault of a place
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"image: {place}{error.strerror or error}", file=sys.stderr)
        return STORAGE


def _list(args: argparse.Namespace) -> int:
    from suite.images.inside import code_digest

    found = listing.collect(args.rules, args.platform, code_digest())
    if args.format == "text":
        listing.print_text(found)
    else:
        print(listing.to_json(found) if args.format == "json" else listing.to_markdown(found))
    return 0


# The lock


def _lock(args: argparse.Namespace) -> int:
    folder = rules.load(args.rules).images_folder
    root = PROJECT if args.rules == rules.LATEST else None
    return write_lock(folder, args.name, repin=args.repin, root=root)


def write_lock(folder: Path, names: Iterable[str], *, repin: bool, root: Path | None) -> int:
    """Resolve the entries in ``folder`` and write them; with ``root``, the Dockerfiles' pins there too."""
    from suite.images.resolve import resolve

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
        print(f"written: {', '.join(map(_shown, changed))}")
        if root is not None:
            print(f"a patch to propose: git diff {_shown(folder)} containers")
    return code


def _lock_check(args: argparse.Namespace) -> int:
    folder = rules.load(args.rules).images_folder
    root = PROJECT if args.rules == rules.LATEST else None
    return check_lock(folder, args.name, root=root)


def check_lock(folder: Path, names: Iterable[str], *, root: Path | None) -> int:
    """Compare the entries in ``folder`` with their registries; with ``root``, the Dockerfiles' pins too."""
    from suite.images.resolve import check

    def one(base: Base) -> list[str]:
        pinned = pins.difference(base, root) if root is not None and base.current else None
        found = [*([pinned] if pinned else []), *check(base)]
        if not found:
            print(f"{base.name}: as the registry has it, {base.reference}")
        return found

    return _each(_chosen(folder, names), one)


def _each(bases: Iterable[Base], one: Callable[[Base], list[str]]) -> int:
    """Call ``one`` for every base and say what differs: one that fails keeps no other from its turn."""
    from suite.images.registry import RegistryProblem, Unreachable
    from suite.images.resolve import Moved

    codes = {0}
    for base in bases:
        problem: RegistryProblem | None = None
        try:
            differences = one(base)
        except Moved as moved:
            differences = [*moved.differences, "nothing was written; --repin takes what the registry has"]
        except RegistryProblem as error:
            problem, differences = error, [str(error)]
        for line in differences:
            print(f"{base.name}: {line}", file=sys.stderr)
        if differences:
            codes.add(ERROR if isinstance(problem, Unreachable) else DIFFERENT)
    # What is known to differ is said first; a registry that is silent says nothing about the image.
    return DIFFERENT if DIFFERENT in codes else max(codes)


def _chosen(folder: Path, names: Iterable[str]) -> list[Base]:
    known = lock.read_folder(folder)
    wanted = list(names)
    for name in wanted:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise LockProblem(
                f"{folder}: expected one of {', '.join(known) or 'no entry'}, found {name!r}{hint}"
            )
    return [known[name] for name in wanted] or [base for base in known.values() if base.status != "archived"]


def _shown(path: Path) -> str:
    return str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path)


# The images


def _build(args: argparse.Namespace) -> int:
    from suite.images import build, preflight
    from suite.images.errors import ImageProblem
    from suite.runtime.docker_engine import DockerEngine

    def one(workload: str, framework: str) -> str:
        base = lock.base_for(args.rules, framework)
        if build.local_base(DockerEngine(), base, args.platform) is None:
            why_not = preflight.of_this_machine(base, args.platform)
            if why_not is not None:
                raise ImageProblem(why_not)
        image = build.build(
            workload,
            framework,
            base,
            platform=args.platform,
            rules_version=args.rules,
            cache=args.cache or build.CACHE,
            fetch=args.fetch,
            say=_say,
        )
        return f"{build.tag_of(workload, framework)} is {image}"

    return _each_pair(args, one)


def _publish(args: argparse.Namespace) -> int:
    from suite.images import build, publish
    from suite.images.errors import ImageProblem
    from suite.runtime.docker_engine import DockerEngine

    def one(workload: str, framework: str) -> str:
        tag = build.tag_of(workload, framework)
        image = DockerEngine().image(tag)
        if image is None or image.platform != args.platform:
            raise ImageProblem(
                f"{tag}: expected an image for {args.platform}, found {image.platform if image else 'none'}; "
                f"`python -m suite image build --rules {args.rules}` makes it"
            )
        path = publish.publish(args.rules, workload, framework, lock.base_for(args.rules, framework), image)
        return f"written: {_shown(path)}"

    return _each_pair(args, one)


def _each_pair(args: argparse.Namespace, one: Callable[[str, str], str]) -> int:
    """Call ``one`` for every pair that is asked for; one that fails keeps no other from its turn."""
    from suite.images.errors import ImageProblem
    from suite.runtime.attestation import EngineProblem
    from suite.runtime.environment_errors import EnvironmentMissing, LargeDownload

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


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
