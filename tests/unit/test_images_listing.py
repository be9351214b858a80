"""`image list` shows each pair, its base, and whether closed runs accept it."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from suite import rules, workloads
from suite.cli import main as cli
from suite.cli.image import where_pairs_ran
from suite.containers.engines.native import PROJECT
from suite.containers.images import listing, lock
from suite.containers.images.lock import PlatformImage

CODE = "0" * 64
DIGEST = "sha256:" + "1" * 64


def text_of(found: listing.Listing, width: int = listing.WIDTH) -> str:
    out = io.StringIO()
    listing.print_text(found, Console(file=out, width=width, highlight=False))
    return out.getvalue()


def main(options: list[str]) -> int:
    """The output of `python -m suite image …` with these options."""
    return cli(["image", *options])


@pytest.fixture
def found() -> listing.Listing:
    return listing.collect(rules.LATEST, "linux/amd64", CODE)


def test_listing_has_every_pair_once(found: listing.Listing) -> None:
    pairs = [(pair.workload, pair.framework) for pair in found.pairs]
    assert pairs == [(name, one) for name in workloads.names() for one in workloads.frameworks(name)]
    assert len(found.archived) == 7


def test_listing_says_where_pairs_of_each_framework_ran(found: listing.Listing) -> None:
    ran = where_pairs_ran(PROJECT / "submissions")
    submitted = [path.parent.name for path in (PROJECT / "submissions").rglob("run.jsonl")]
    assert sum(one.results for one in ran) == len(submitted)
    one = listing.RanOn("pytorch", "NVIDIA H200", "native", 3, ("gnmt", "ncf"))
    rows = listing._ran_rows(replace(found, ran=(one,)))
    assert ["pytorch", "NVIDIA H200", "native", "3", "gnmt, ncf"] in rows
    assert ["mxnet", "–", "–", "0", "–"] in rows
    assert "gnmt, ncf" in text_of(replace(found, ran=(one,)))
    assert "| gnmt, ncf |" in listing.to_markdown(replace(found, ran=(one,)))


def test_closed_needs_resolved_base_and_published_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    image = PlatformImage(DIGEST, DIGEST, (DIGEST,), 1)
    ready = replace(
        lock.base_for(rules.LATEST, "pytorch"),
        status="resolved",
        platforms={"linux/amd64": image},
    )
    published: dict[str, tuple[str, ...]] = {}
    monkeypatch.setattr(lock, "bases", lambda version: {ready.name: ready})
    monkeypatch.setattr(rules.Rules, "published", lambda self, *key: published.get("/".join(key)))

    def why(platform: str = "linux/amd64") -> str | None:
        pairs = listing.collect(rules.LATEST, platform, CODE).pairs
        return {pair.name: pair.why_not for pair in pairs}["ncf-pytorch"]

    assert "no layers are published for this code" in str(why())
    published[f"ncf/pytorch/{CODE}/linux/amd64/{ready.name}"] = (DIGEST,)
    assert why() is None
    assert why("linux/arm64") == f"{ready.name} does not exist for linux/arm64"
    ready = replace(ready, status="unverified")
    assert "never read back" in str(why())
    ready = replace(ready, framework="other")
    assert why() == f"no base image of pytorch in rules {rules.LATEST}"
    assert "no base image of pytorch" in text_of(listing.collect(rules.LATEST, "linux/amd64", CODE))


def test_text_fits_120_columns_without_truncation(found: listing.Listing) -> None:
    text = text_of(found)
    assert max(map(len, text.splitlines())) <= 120
    assert "…" not in text, "nothing is cut off"
    for base in lock.read_folder(rules.load(rules.LATEST).images_folder).values():
        assert base.name in text or base.tag in text
        for value in (base.contains["framework"], base.contains["cuda"], base.minimum_driver):
            assert value is None or value in text
    assert "c83b37d26f19?" in text
    assert listing._FOOTNOTE in text


def test_json_has_every_pair_with_full_digests(found: listing.Listing) -> None:
    read = json.loads(listing.to_json(found))
    pair = next(one for one in read["pairs"] if (one["workload"], one["framework"]) == ("gnmt", "pytorch"))
    assert not pair["closed_ready"]
    assert pair["why_not"]
    base = lock.base_for(rules.LATEST, "pytorch")
    assert pair["base"]["reference"] == base.reference
    assert pair["base"]["platform"]["manifest_digest"] == base.platform("linux/amd64").manifest_digest
    assert pair["base"]["contains"] == dict(base.contains)


def test_markdown_has_one_row_for_each_pair(found: listing.Listing) -> None:
    lines = listing.to_markdown(found).splitlines()
    row = next(line for line in lines if line.startswith("| ncf-pytorch "))
    header = next(line for line in lines if line.startswith("| pair "))
    assert row.count("|") == header.count("|")
    for cell in ("pytorch:26.08-py3", "13.4.1", "9.25.0", "2.30.7", "3.12.3", "580", "unverified"):
        assert f" {cell} " in row


@pytest.mark.parametrize("options", [[], ["--format", "md"], ["--format", "json"], ["--rules", "practice"]])
def test_command_prints_the_listing(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *options]) == 0
    assert "gnmt" in capsys.readouterr().out


def test_command_refuses_unknown_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lock", "pytorch-26.80"]) == 2
    assert "did you mean pytorch-26.08?" in capsys.readouterr().err
    assert main([]) == 2
    assert main(["lcok"]) == 2
    assert "did you mean image lock?" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["list", "--rules", "0.1"])
    assert caught.value.code == 2
