"""The price file: what is read, and one sentence for each thing that is wrong with it."""

from __future__ import annotations

from datetime import date
from hashlib import sha256
from pathlib import Path

import pytest

from suite.advice.prices import PriceError, read_prices

TODAY = date(2026, 11, 24)
HEAD = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,"
    "currency,retrieved,source"
)
SMALL = "small,,,2,8,0.10,here,,USD,2026-11-20,made up"
MEMORY = "\"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 143771}}]}\""
GPU = f"gpu,H200,1.0,16,128,4.0,here,{MEMORY},USD,2026-11-20,made up"


def written(folder: Path, *rows: str, head: str = HEAD) -> Path:
    path = folder / "prices.csv"
    path.write_text("\n".join([head, *rows, ""]))
    return path


def test_machines_are_read_with_the_digest_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL, GPU)
    prices = read_prices(path, TODAY)
    assert prices.digest == sha256(path.read_bytes()).hexdigest()
    assert (prices.currency, prices.oldest, prices.sources) == ("USD", date(2026, 11, 20), ("made up",))
    small, gpu = prices.machines
    assert (small.cpus, small.memory_bytes, small.devices, small.price) == (2, 8 << 30, 0, 0.10)
    assert (gpu.accelerator, gpu.devices, gpu.device_memory_bytes) == ("H200", 1, 143_771 << 20)


def test_a_machine_has_the_device_of_a_log_by_name_and_memory(tmp_path: Path) -> None:
    small, gpu = read_prices(written(tmp_path, SMALL, GPU), TODAY).machines
    assert gpu.has_device("NVIDIA H200", 150_754_820_096)
    assert not gpu.has_device("NVIDIA H200", 80 << 30)
    assert not gpu.has_device("NVIDIA H100 80GB HBM3", None)
    assert not small.has_device("NVIDIA H200", None)


def test_of_several_regions_the_cheapest_counts(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL, SMALL.replace("0.10,here", "0.05,there"))
    (machine,) = read_prices(path, TODAY).machines
    assert (machine.price, machine.region) == (0.05, "there")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((SMALL.replace("0.10", "-0.10"),), r"line 2, Price: expected a number above 0, found '-0.10'"),
        ((SMALL.replace("0.10", "cheap"),), r"line 2, Price: expected a number above 0, found 'cheap'"),
        ((SMALL.replace("0.10", "nan"),), r"line 2, Price: expected a number above 0, found 'nan'"),
        ((SMALL, GPU.replace("USD", "EUR")), r"expected one currency, found EUR and USD"),
        ((SMALL.replace("USD", "$"),), r"currency: expected three letters such as USD, found '\$'"),
        ((SMALL.replace("2026-11-20", "2026-08-25"),), r"small is 91 days old.*PRICE_AGE=91"),
        ((SMALL.replace("2026-11-20", "2026-12-01"),), r"retrieved: expected a date until today"),
        ((SMALL.replace("2026-11-20", "last week"),), r"retrieved: expected a date such as"),
        ((GPU.replace("1.0,16", "1.5,16"),), r"AcceleratorCount: expected a whole number, found '1.5'"),
        ((SMALL.replace("small,,,", "small,,1,"),), r"AcceleratorName: expected a name"),
        ((SMALL + ",more",), r"line 2: expected one value for each column"),
        ((SMALL.removesuffix("made up"),), r"source: expected a text"),
        ((), r"expected at least one machine"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, rows: tuple[str, ...], message: str) -> None:
    with pytest.raises(PriceError, match=message) as raised:
        read_prices(written(tmp_path, *rows), TODAY)
    assert "\n" not in str(raised.value)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL, head=HEAD.replace("currency", "Currency"))
    with pytest.raises(PriceError, match="currency is missing"):
        read_prices(path, TODAY)


def test_an_older_price_is_read_if_the_user_allows_it(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL.replace("2026-11-20", "2026-08-25"))
    assert read_prices(path, TODAY, max_age_days=91).oldest == date(2026, 8, 25)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PriceError, match="expected CSV in UTF-8"):
        read_prices(path, TODAY)
    with pytest.raises(PriceError, match="cannot be read"):
        read_prices(tmp_path / "none.csv", TODAY)
