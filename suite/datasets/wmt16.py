"""WMT16 English-German as the MLPerf reference prepares it: from the archives, or from its ready-made files.

The recipe is ``scripts/wmt16_en_de.sh`` of the reference. What it makes is accepted if, and only if, every
file has the MD5 that the reference publishes (``verify_dataset.sh``); a stage whose file has another one ends
the preparation with its name, what was expected and what was found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

from suite.datasets.catalogue import Archive, CatalogueEntry, DownloadSource, Recipe
from suite.datasets.download import download, exclusive, require_space, size_of
from suite.datasets.errors import DatasetCorrupt, DatasetError, DatasetMissing, storage_errors
from suite.datasets.install import Streams, install, verify_archive
from suite.datasets.prepare import PreparedDataset, check, derive
from suite.datasets.stages import Stage, perform
from suite.datasets.verify import Progress, sha256_file
from suite.datasets.wmt16_text import ENCODING, clean_pairs, segments
from suite.environments import environments

ROOT = Path(__file__).resolve().parents[2]
MERGES = 32_000
SIDES = ("en", "de")
TEST = {"en": "newstest2014-deen-ref.en.sgm", "de": "newstest2014-deen-src.de.sgm"}
CODES = "bpe.32000"
VOCABULARY = "vocab.bpe.32000"
_BLOCK = 1 << 20


def describe(recipe: Recipe) -> list[str]:
    """The downloads, disk and time of a preparation from the archives, as lines to print before it starts."""
    wanted = [archive for archive in recipe.archives if archive.instead is None]
    known = sum(archive.bytes or 0 for archive in wanted)
    cores = len(os.sched_getaffinity(0))
    addresses = ", ".join(archive.url for archive in wanted)
    disk = f"about {recipe.disk_bytes / 1e9:.0f} GB of disk at the peak"
    time = f"a few hours of computing on {cores} cores; after an interruption the same command continues"
    return [
        f"{len(wanted)} archives, at least {known / 1e9:.1f} GB: {addresses}",
        f"then tokens, cleaning and byte-pair encoding: {disk}, {time}",
    ]


def obtain(
    entry: CatalogueEntry,
    recipe: Recipe,
    root: Path,
    progress: Progress | None = None,
    copy: Path | None = None,
) -> PreparedDataset:
    """The dataset under ``root``: from the publishers' archives, or from ``copy``.

    ``copy`` is a folder with the ready-made files of the reference, or with the archives; it is only read,
    and then nothing is fetched. Raises ``DatasetMissing``, ``DatasetCorrupt``, ``FetchFailed``, ``NoSpace``,
    ``ReadOnly``.
    """
    report = progress or (lambda *_: None)
    if copy is not None and not copy.is_dir():
        raise DatasetMissing(
            f"{copy}: expected a folder with the archives or the ready-made files, found none."
        )
    if copy is not None and all((copy / name).is_file() for name in entry.files):
        _install(entry, copy, root, {"made": "ready-made files"}, report)
    else:
        with _working(entry, root) as folder:
            require_space(root, recipe.disk_bytes - _size(folder))
            archives = _archives(recipe, folder, copy, report)
            digests = {name: sha256_file(path) for name, path in archives.items()}
            maker = _Maker(recipe, folder, archives, digests, report)
            with storage_errors(folder):
                stages = maker.stages()
                perform(
                    stages, folder, entry.published, lambda line: report(f"{entry.name}: {line}", 0, None)
                )
            _install(entry, folder, root, {"made": "from the archives", "archives": digests}, report)
            shutil.rmtree(folder)
    prepared = check(entry, root / entry.name, progress, verify=True)
    return derive(entry, prepared, progress)


@contextmanager
def _working(entry: CatalogueEntry, root: Path) -> Iterator[Path]:
    """The folder of a preparation in progress, locked for one process; it stays after an interruption."""
    folder = root / f".{entry.name}.making"
    with storage_errors(root):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (root / f".{entry.name}.lock").open("w")
    with lock, exclusive(lock, folder):
        try:
            yield folder
        finally:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
            Path(lock.name).unlink(missing_ok=True)


# Archives


def _archives(recipe: Recipe, folder: Path, copy: Path | None, report: Progress) -> dict[str, Path]:
    """Every archive by name, verified: those of ``copy``, else fetched."""
    wanted = [archive for archive in recipe.archives if archive.instead is None]
    if copy is None:
        return {archive.name: _fetched(archive, folder, report) for archive in wanted}
    found: dict[str, Path] = {}
    for archive in wanted:
        alternatives = [archive, *(other for other in recipe.archives if other.instead == archive.name)]
        have = next((one for one in alternatives if (copy / one.name).is_file()), None)
        if have is None:
            names = " or ".join(one.name for one in alternatives)
            files = "the ready-made files, or every archive"
            raise DatasetMissing(f"{copy}: expected {files} in this folder, found no {names}.")
        report(f"verifying {have.name}", 0, None)
        verify_archive(_source(have, (copy / have.name).stat().st_size), copy / have.name)
        found[have.name] = copy / have.name
    return found


def _fetched(archive: Archive, folder: Path, report: Progress) -> Path:
    target = folder / archive.name
    if not target.is_file():
        size = archive.bytes or size_of(archive.url)
        download(_source(archive, size), folder, report).replace(target)
    verify_archive(_source(archive, target.stat().st_size), target)
    return target


def _source(archive: Archive, size: int) -> DownloadSource:
    return DownloadSource(archive.url, archive.bytes or size, None, archive.sha256)


# Stages


class _Maker:
    """The stages of the recipe, over files of one folder."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        archives: dict[str, Path],
        digests: dict[str, str],
        report: Progress,
    ) -> None:
        self._recipe, self._folder, self._archives, self._report = recipe, folder, archives, report
        self._members = {
            member: archives[archive.name]
            for archive in recipe.archives
            if archive.name in archives
            for member in archive.members
        }
        self._sources = " ".join(f"{name}:{digest}" for name, digest in sorted(digests.items()))
        self._lock = environments.tools_plan("data").digest

    def stages(self) -> list[Stage]:
        """All of them, in order."""
        plain = [f"{text}.{side}" for text in ("train", "newstest2014") for side in SIDES]
        tokens = [f"{text}.tok.{side}" for text in ("train", "newstest2014") for side in SIDES]
        clean = [f"train.tok.clean.{side}" for side in SIDES]
        encoded = [f"train.tok.clean.bpe.32000.{side}" for side in SIDES]
        found = [Stage("extract", (), tuple(plain), self._extract, self._sources)]
        for before, after in zip(plain, tokens, strict=True):
            side = before.rpartition(".")[2]
            found.append(self._tool(f"tokenise {before}", (before,), after, "tokenise", side, before))
        found.append(
            Stage("clean", tuple(tokens[:2]), tuple(clean), self._clean, f"{self._recipe.pairs} pairs")
        )
        # The reference learns from German first, and counts the vocabulary from English first.
        german_first = clean[::-1]
        found.append(
            self._tool("learn", tuple(german_first), CODES, "learn", str(MERGES), None, *german_first)
        )
        for before in (*clean, *tokens[2:]):
            stem, _, side = before.rpartition(".")
            after = f"{stem}.bpe.32000.{side}"
            found.append(
                self._tool(f"encode {before}", (CODES, before), after, "apply", self._at(CODES), before)
            )
        found.append(self._tool("vocabulary", tuple(encoded), VOCABULARY, "vocabulary", None, *encoded))
        return found

    def _at(self, name: str) -> str:
        return str(self._folder / name)

    def _tool(self, name: str, reads: tuple[str, ...], writes: str, *command: str | None) -> Stage:
        """A stage of ``wmt16_tools``: names of files become paths; None, or the end, is the file to write."""

        def run(parts: Sequence[Path]) -> None:
            target = str(parts[0])
            arguments = [
                target if item is None else self._at(item) if item in reads else item for item in command
            ]
            if None not in command:
                arguments.append(target)
            total = sum((self._folder / read).stat().st_size for read in reads if read != CODES)
            run_tool(arguments, lambda done: self._report(f"wmt16: {name}", done, total))

        return Stage(name, reads, (writes,), run, self._lock)

    def _extract(self, parts: Sequence[Path]) -> None:
        for side, train, test in zip(SIDES, parts[:2], parts[2:], strict=True):
            with train.open("wb") as out:
                for member in self._members:
                    if member.endswith(f".{side}"):
                        self._copy(member, out.write)
            sgm: list[bytes] = []
            self._copy(TEST[side], sgm.append)
            test.write_bytes(b"".join(segments(b"".join(sgm))))

    def _copy(self, member: str, write: Callable[[bytes], Any]) -> None:
        """Pass the content of ``member`` to ``write``; the search uses its file name only, never its path."""
        archive = self._members[member]
        fix = "Take the publisher's archive unchanged."
        try:
            with tarfile.open(archive, "r|*") as tar:
                for info in tar:
                    if info.isfile() and Path(info.name).name == member:
                        stream = tar.extractfile(info)
                        while stream is not None and (block := stream.read(_BLOCK)):
                            write(block)
                        return
        except (tarfile.TarError, EOFError, OSError) as error:
            raise DatasetCorrupt(archive.name, "a whole tar archive", str(error), fix) from error
        raise DatasetCorrupt(archive.name, f"a member {member}", "none", fix)

    def _clean(self, parts: Sequence[Path]) -> None:
        count = 0
        with ExitStack() as stack:
            names = [self._folder / f"train.tok.{side}" for side in SIDES]
            sides = [stack.enter_context(path.open(**ENCODING)) for path in names]  # type: ignore[call-overload]
            outs = [stack.enter_context(part.open("w", encoding="utf-8", newline="\n")) for part in parts]
            for pair in clean_pairs(_together(*sides)):
                count += 1
                for out, line in zip(outs, pair, strict=True):
                    out.write(f"{line}\n")
        if count != self._recipe.pairs:
            fix = "The archives or the tokeniser differ from those of the reference."
            raise DatasetCorrupt("stage clean", f"{self._recipe.pairs} pairs", f"{count} pairs", fix)


def _together(first: Iterator[str], second: Iterator[str]) -> Iterator[tuple[str, str]]:
    for number, (one, two) in enumerate(zip_longest(first, second), 1):
        if one is None or two is None:
            fix = "Take the publisher's archives unchanged."
            raise DatasetCorrupt("training text", "equally many lines", f"one side ends at {number - 1}", fix)
        yield one, two


def run_tool(command: Sequence[str], report: Callable[[int], None]) -> None:
    """``wmt16_tools`` with these arguments in the environment of the tools; DatasetError where it fails."""
    try:
        python = environments.ensure_tools("data", lambda line: print(line, flush=True))
    except environments.EnvironmentMissing as error:
        raise DatasetError(f"the tools that prepare wmt16: {error}") from error
    settings = {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "PATH": os.environ.get("PATH", "")}
    whole = [str(python), "-m", "suite.datasets.wmt16_tools", *command]
    errors: list[str] = []
    with subprocess.Popen(
        whole, cwd=ROOT, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip().isdigit():
                report(int(line))
            else:
                errors = [*errors[-19:], line.rstrip()]
    if process.returncode:
        raise DatasetError(f"{command[0]} failed with status {process.returncode}: " + "\n".join(errors))


# Install


def _install(
    entry: CatalogueEntry, source: Path, root: Path, parameters: dict[str, Any], report: Progress
) -> None:
    """Install the files of ``source``, each verified by its published MD5."""
    require_space(root, sum((source / name).stat().st_size for name in entry.files))

    def streams() -> Streams:
        for number, name in enumerate(entry.files):
            report(f"installing {entry.name}", number, len(entry.files))
            with (source / name).open("rb") as stream:
                yield name, stream

    install(entry, streams(), root, parameters)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
