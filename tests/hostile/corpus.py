"""Hostile results: known attacks on readers of JSON and of submitted files.

Each takes a good result's folder and spoils it; ``ROWS`` names the rule that must refuse it. The bytes are
made here, because a repository should not contain a line of 64 MiB.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from suite.log.canonical import MAX_EVENTS, MAX_FILE, MAX_LINE

Spoil = Callable[[Path], object]
RIGHT_TO_LEFT, ESCAPE = "\u202e", "\x1b[31m"
_NUMBER = b'"seq":1,'  # in the second line of every log


def _log(folder: Path) -> Path:
    return folder / "run.jsonl"


def text(content: bytes) -> Spoil:
    """The whole log is ``content``."""
    return lambda folder: _log(folder).write_bytes(content)


def second(line: bytes) -> Spoil:
    """The second line is ``line``."""

    def spoil(folder: Path) -> None:
        lines = _log(folder).read_bytes().split(b"\n")
        lines[1] = line
        _log(folder).write_bytes(b"\n".join(lines))

    return spoil


def number(literal: bytes) -> Spoil:
    """The second line's ``seq`` is written as ``literal``."""

    def spoil(folder: Path) -> None:
        before = _log(folder).read_bytes()
        assert before.count(_NUMBER) == 1
        _log(folder).write_bytes(before.replace(_NUMBER, b'"seq":' + literal + b","))

    return spoil


def nested(opening: bytes, closing: bytes, times: int) -> Spoil:
    """The second line nests ``times`` levels."""
    return second(b'{"data":' + opening * times + b"1" + closing * times + b"}")


def whole(change: Callable[[bytes], bytes]) -> Spoil:
    """The bytes of the whole log go through ``change``."""
    return lambda folder: _log(folder).write_bytes(change(_log(folder).read_bytes()))


def instead(make: Callable[[Path], object]) -> Spoil:
    """The log is not a regular file."""

    def spoil(folder: Path) -> None:
        _log(folder).unlink()
        make(_log(folder))

    return spoil


def beside(name: str, content: bytes = b"x") -> Spoil:
    """Add another file to the folder."""
    return lambda folder: (folder / name).write_bytes(content)


def sparse(size: int) -> Spoil:
    """The log is a sparse file of ``size`` bytes."""
    return lambda folder: os.truncate(_log(folder), size)


def moved_out(folder: Path) -> None:
    """The log is a link to a file outside of the folder."""
    target = folder.parent / "elsewhere.jsonl"
    _log(folder).rename(target)
    _log(folder).symlink_to(target)


def last_day(day: bytes) -> Spoil:
    """The last line, which no other line hashes, has another day."""

    def change(data: bytes) -> bytes:
        before, key, after = data.rpartition(b'"wall":"')
        return before + key + day + after[len(day) :]

    return whole(change)


ROWS: dict[str, tuple[str, Spoil]] = {
    # files (what is opened)
    "pipe": ("LOG-001", instead(os.mkfifo)),
    "link to the log": ("LOG-001", moved_out),
    "link to /dev/zero": ("LOG-001", instead(lambda path: path.symlink_to("/dev/zero"))),
    "link to a /proc file": ("LOG-001", instead(lambda path: path.symlink_to("/proc/self/environ"))),
    "link to nowhere": ("LOG-001", instead(lambda path: path.symlink_to("nowhere"))),
    "link to itself": ("LOG-001", instead(lambda path: path.symlink_to("run.jsonl"))),
    "folder instead of the log": ("LOG-001", instead(Path.mkdir)),
    "no log": ("LOG-001", instead(lambda path: None)),
    "pipe beside the log": ("LOG-001", lambda folder: os.mkfifo(folder / "system.json")),
    "another file": ("LOG-002", beside("evil.py", b"import os; os.abort()")),
    "a name of commands": ("LOG-002", beside(f"{ESCAPE}::error::{RIGHT_TO_LEFT}")),
    "an archive beside the log": ("LOG-002", beside("run.zip", b"PK\x03\x04")),
    "a pickle beside the log": ("LOG-002", beside("model.pkl", b"cos\nsystem\n(S'touch owned'\ntR.")),
    # sizes
    "empty": ("LOG-012", text(b"")),
    "only line feeds": ("LOG-004", text(b"\n" * 1000)),
    "file over the cap": ("LOG-003", sparse(MAX_FILE + 1)),
    "file of 8 TiB": ("LOG-003", sparse(1 << 43)),
    "zeros up to the cap": ("LOG-009", sparse(MAX_FILE)),
    "line over the cap": ("LOG-003", second(b'{"data":"' + b"a" * MAX_LINE + b'"}')),
    "line of 32 MiB": ("LOG-003", second(b"[" * (32 << 20))),
    "more lines than events allowed": ("LOG-003", text(b"{}\n" * (MAX_EVENTS + 1))),
    "as many lines as allowed": ("LOG-011", text(b"{}\n" * MAX_EVENTS)),
    "64 MiB of line feeds": ("LOG-003", text(b"\n" * MAX_FILE)),
    "long string": ("LOG-003", second(b'{"data":"' + b"a" * 5000 + b'"}')),
    "long string outside ASCII": ("LOG-003", second(b'{"data":"' + "é".encode() * 2100 + b'"}')),
    "memory bomb of lists": ("LOG-004", second(b"[" + b"[]," * 20_000 + b"[]]")),
    "memory bomb of objects": ("LOG-004", second(b"[" + b'{"a":0},' * 8_000 + b"{}]")),
    "memory bomb of lines": ("LOG-004", text((b"[" + b"0," * 30_000 + b"0]\n") * 900)),
    # nesting
    "nesting of 17": ("LOG-003", nested(b"[", b"]", 17)),
    "nesting of 17 objects": ("LOG-003", nested(b'{"a":', b"}", 17)),
    "nesting of 1,025": ("LOG-003", nested(b"[", b"]", 1025)),
    "nesting of 30,000": ("LOG-003", nested(b"[", b"]", 30_000)),
    "nesting without end": ("LOG-003", second(b"[" * 60_000)),
    # numbers
    "NaN": ("LOG-005", number(b"NaN")),
    "Infinity": ("LOG-005", number(b"Infinity")),
    "-Infinity": ("LOG-005", number(b"-Infinity")),
    "1e400": ("LOG-008", number(b"1e400")),
    "1.0": ("LOG-008", number(b"1.0")),
    "1e0": ("LOG-008", number(b"1e0")),
    "-0.0": ("LOG-008", number(b"-0.0")),
    "-0": ("LOG-007", number(b"-0")),
    "01": ("LOG-004", number(b"01")),
    "1.": ("LOG-004", number(b"1.")),
    "0x1": ("LOG-004", number(b"0x1")),
    "2^53": ("LOG-007", number(b"9007199254740992")),
    "2^64": ("LOG-007", number(b"18446744073709551616")),
    "4,301 digits": ("LOG-007", number(b"1" * 4301)),
    "60,000 digits": ("LOG-007", number(b"1" * 60_000)),
    "float of 60,000 digits": ("LOG-008", number(b"1." + b"1" * 60_000)),
    "true for 1": ("LOG-011", number(b"true")),
    "text for 1": ("LOG-011", number(b'"1"')),
    "null for 1": ("LOG-011", number(b"null")),
    # objects
    "duplicate key": ("LOG-006", number(b'1,"seq":1')),
    "duplicate by escape": ("LOG-006", number(b'1,"\\u0073eq":1')),
    "many duplicates": ("LOG-006", second(b"{" + b'"a":1,' * 9_000 + b'"a":1}')),
    "space": ("LOG-007", number(b" 1")),
    "keys out of order": ("LOG-007", second(b'{"b":1,"a":1}')),
    "escaped slash": ("LOG-007", second(b'{"a":"\\/"}')),
    "escaped letter": ("LOG-007", second(b'{"a":"\\u0061"}')),
    "list for an object": ("LOG-004", second(b"[]")),
    "text for an object": ("LOG-004", second(b'"x"')),
    "null for an object": ("LOG-004", second(b"null")),
    "two objects": ("LOG-004", second(b"{}{}")),
    "comment": ("LOG-004", second(b"{}// comment")),
    "YAML": ("LOG-004", second(b"a: &a [x, x]")),
    "Python": ("LOG-004", second(b"__import__('os').system('touch owned')")),
    "key of a class": ("LOG-011", second(b'{"__class__":"os.system","__init__":{"__globals__":1}}')),
    # dates
    "31 February": ("LOG-014", last_day(b"2026-02-31")),
    "29 February of a common year": ("LOG-014", last_day(b"2027-02-29")),
    "31 April": ("LOG-014", last_day(b"2026-04-31")),
    "day 0": ("LOG-014", last_day(b"2026-11-00")),
    "month 13": ("LOG-014", last_day(b"2026-13-01")),
    "hour 24": ("LOG-014", last_day(b"2026-11-20T24")),
    "minute 60": ("LOG-014", last_day(b"2026-11-20T17:60")),
    "second 60": ("LOG-014", last_day(b"2026-11-20T17:16:60")),
    # text
    "UTF-8 BOM": ("LOG-004", whole(lambda data: b"\xef\xbb\xbf" + data)),
    "UTF-16": ("LOG-009", whole(lambda data: data.decode().encode("utf-16"))),
    "UTF-32": ("LOG-009", whole(lambda data: data.decode().encode("utf-32"))),
    "overlong UTF-8": ("LOG-004", second(b'{"a":"\xc0\xaf"}')),
    "bare continuation": ("LOG-004", second(b'{"a":"\x80"}')),
    "surrogate in UTF-8": ("LOG-004", second(b'{"a":"\xed\xa0\x80"}')),
    "surrogate by escape": ("LOG-007", second(b'{"a":"\\ud800"}')),
    "raw control character": ("LOG-004", second(b'{"a":"\x1b[2J"}')),
    "raw NUL": ("LOG-004", second(b'{"a":"\x00"}')),
    "escaped control character": ("LOG-018", second(b'{"a":"\\u001b[2J"}')),
    "escaped NUL": ("LOG-018", second(b'{"a":"\\u0000"}')),
    "DEL": ("LOG-018", second(b'{"a":"\x7f"}')),
    "C1 control": ("LOG-018", second('{"a":"\x9b31m"}'.encode())),
    "carriage returns": ("LOG-007", whole(lambda data: data.replace(b"\n", b"\r\n"))),
    "other line ends": ("LOG-009", whole(lambda data: data.replace(b"\n", "\u2028".encode()))),
    "no last line end": ("LOG-009", whole(lambda data: data[:-1])),
    "compressed": ("LOG-009", text(b"\x1f\x8b\x08\x00 not a log")),
    "a+ for a slow pattern": ("LOG-011", second(b'{"a":"' + b"a" * 4000 + b'!"}')),
}


def _system(text_of_it: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "system.json").write_text(text_of_it, encoding="utf-8")


_ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [*{old},*{old},*{old},*{old},*{old},*{old},*{old},*{old},*{old}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
# Contents of system.json: each must give a finding SUBM-003 or SUBM-004.
SYSTEMS: dict[str, Callable[[Path], object]] = {
    "alias bomb": _system(_ALIASES),
    "NaN": _system('{"submitter": NaN}'),
    "1e400": _system('{"submitter": 1e400}'),
    "4,301 digits": _system('{"submitter": ' + "1" * 4301 + "}"),
    "duplicate": _system('{"submitter": "a", "submitter": "b"}'),
    "deep": _system("[" * 30_000),
    "deep and closed": _system("[" * 30_000 + "]" * 30_000),
    "deep object": _system('{"a":' * 500 + "1" + "}" * 500),
    "over 64 KiB": _system(" " * (65 * 1024)),
    "list": _system("[]"),
    "surrogate": _system(json.dumps({"submitter": "\ud800"})),
    "escape sequence": _system(json.dumps({"submitter": ESCAPE, RIGHT_TO_LEFT: "::error::x"})),
    "UTF-8 BOM": _system('\ufeff{"submitter": "a"}'),
    "UTF-16": lambda folder: (folder / "system.json").write_bytes("{}".encode("utf-16")),
    "pickle": lambda folder: (folder / "system.json").write_bytes(b"\x80\x04cos\nsystem\n"),
    "reference outside": _system(
        json.dumps({"$ref": "http://127.0.0.1:9/x", "$schema": "file:///etc/passwd"})
    ),
}
