"""The argv of every runtime: pinned by golden files, and never privileged for any inputs."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suite.containers.engines.apptainer import Apptainer
from suite.containers.engines.container import (
    CODE,
    DATA,
    SCRATCH,
    CannotRun,
    ContainerInputs,
    Limits,
    Mount,
    Runtime,
    unenforced_limits,
)
from suite.containers.engines.docker import Docker
from suite.containers.engines.enroot import ENTRYPOINT, Enroot
from suite.containers.engines.native import WorkerCommand
from suite.containers.engines.podman import Podman
from suite.containers.engines.pyxis import Pyxis

GOLDEN = Path(__file__).parent / "golden"
IMAGE = "sha256:" + "5a" * 32
GPUS = ("GPU-1f2e3d4c", "GPU-5b6a7988")
ENVIRONMENT = {"HOME": SCRATCH, "TMPDIR": SCRATCH, "PYTHONPATH": f"{CODE}:/opt/suite/site", "X": "a,b=c"}
LIMITS = Limits.parse(1.5, [0, 1], "8g", "16g")
RUNTIMES: tuple[Runtime, ...] = (
    *(Docker("cdi"), Docker("gpus"), Docker(None), Docker("cdi", rootless=True)),
    *(Podman(), Podman(rootless=False), Apptainer(), Enroot(), Pyxis()),
)


def inputs(
    image: str = IMAGE,
    devices: tuple[str, ...] = (),
    limits: Limits = Limits(),  # noqa: B008 - frozen
    code: bool = False,
) -> ContainerInputs:
    mounts = [Mount(Path("/srv/data/ncf"), DATA), Mount(Path("/srv/cache/scratch"), SCRATCH, writable=True)]
    if code:
        mounts.append(Mount(Path("/home/who/suite"), f"{CODE}/suite"))
    return ContainerInputs(
        image=image,
        name="suite-8f3a-0",
        environment=ENVIRONMENT,
        mounts=tuple(mounts),
        user=(1000, 1000),
        devices=devices,
        limits=limits,
        labels={"suite.worker": "20261101T120000Z-8f3a"},
        directory=Path("/srv/cache/scratch"),
    )


SIF, SQSH = "/srv/images/pytorch.sif", "/srv/images/pytorch.sqsh"
CASES: dict[str, tuple[Runtime, ContainerInputs]] = {
    "docker-cpu": (Docker(), inputs()),
    "docker-cdi": (Docker("cdi"), inputs(devices=GPUS)),
    "docker-gpus": (Docker("gpus"), inputs(devices=GPUS)),
    "docker-limits": (Docker(), inputs(limits=LIMITS)),
    "docker-mounted-code": (Docker("cdi"), inputs(devices=GPUS[:1], code=True)),
    "docker-rootless": (Docker("cdi", rootless=True), inputs(devices=GPUS)),
    "podman-cpu": (Podman(), inputs()),
    "podman-cdi-limits": (Podman(), inputs(devices=GPUS, limits=LIMITS)),
    "podman-root": (Podman(rootless=False), inputs(devices=GPUS)),
    "apptainer-cpu-limits": (Apptainer(), inputs(SIF, limits=Limits.parse(2, "0-1", "8g"), code=True)),
    "apptainer-gpu": (Apptainer(), inputs(SIF, GPUS, code=True)),
    "enroot-cpu": (Enroot(), inputs(SQSH, code=True)),
    "enroot-gpu": (Enroot(), inputs(SQSH, GPUS, code=True)),
    "pyxis-gpu": (Pyxis(), inputs(SQSH, GPUS, code=True)),
}


@pytest.fixture(autouse=True)
def _plain_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's environment that contains only the search path."""
    for name in ("HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name in ("DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "ENROOT_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin")


def text(command: WorkerCommand) -> str:
    """One argument for each line, then the client's environment except its search path."""
    variables = [f"{name}={value}" for name, value in sorted(command.environment.items()) if name != "PATH"]
    lines = [argument.replace(str(ENTRYPOINT), "<entrypoint>") for argument in command.argv]
    return "\n".join([*lines, "", *variables]).rstrip("\n") + "\n"


@pytest.mark.parametrize("case", CASES)
def test_argv_equals_the_golden_file(case: str) -> None:
    runtime, case_inputs = CASES[case]
    assert text(runtime.command(case_inputs)) == (GOLDEN / f"{case}.txt").read_text()


def test_every_golden_file_is_used() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)


VALUE = st.text("abz09_-. ,=\"'$;\\", min_size=1, max_size=12)
PATHS = st.lists(st.text("abz09_-.", min_size=1, max_size=8), min_size=1, max_size=4).map(
    lambda parts: Path("/srv", *parts)
)


@st.composite
def any_inputs(draw: st.DrawFn) -> ContainerInputs:
    names = st.from_regex(r"[A-KM-OQRT-Z][A-Z_]{0,8}", fullmatch=True)  # none that srun itself reads
    mounts = [Mount(path, f"/in/{index}") for index, path in enumerate(draw(st.lists(PATHS, max_size=3)))]
    limits = Limits.parse(
        draw(st.one_of(st.none(), st.integers(1, 64))),
        draw(st.one_of(st.none(), st.lists(st.integers(0, 63), min_size=1, max_size=4))),
        draw(st.one_of(st.none(), st.integers(1, 1 << 40))),
        draw(st.one_of(st.none(), st.integers(1, 1 << 40))),
    )
    return ContainerInputs(
        image=str(draw(PATHS)),
        name=draw(st.from_regex(r"[a-z][a-z0-9-]{1,10}", fullmatch=True)),
        environment=draw(st.dictionaries(names, VALUE, max_size=4)),
        mounts=(*mounts, Mount(draw(PATHS), SCRATCH, writable=True)),
        user=(draw(st.integers(1, 70_000)), draw(st.integers(0, 70_000))),
        devices=tuple(draw(st.lists(st.from_regex(r"GPU-[0-9a-f]{4}", fullmatch=True), max_size=3))),
        limits=limits,
        directory=draw(PATHS),
    )


def network_is_off(argv: tuple[str, ...], runtime: Runtime) -> bool:
    if "network" in runtime.not_enforced:  # the runtime states it, and the checker judges
        return not any(argument.startswith("--net") for argument in argv)
    options = argv[: argv.index("python3")]
    return options[options.index("--network") + 1] == "none" and options.count("--network") == 1


def writable_binds(argv: tuple[str, ...], runtime: Runtime, case: ContainerInputs) -> list[str]:
    """Sources that the command mounts so that the worker may write there."""
    found: list[str] = []
    for argument in argv[: argv.index("python3")]:
        if argument.startswith("type=bind"):
            fields = next(csv.reader([argument]))
            if "readonly" not in fields:
                found.append(fields[1].removeprefix("source="))
        elif argument.endswith({"apptainer": ":rw", "enroot": "bind,rw"}.get(runtime.name, "\0")):
            found.append(argument.split(":")[0])
        elif argument.startswith("--container-mounts="):
            entries = argument.partition("=")[2].split(",")
            found += [entry.split(":")[0] for entry in entries if entry.endswith(":rw")]
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(case=any_inputs())
def test_commands_are_unprivileged_without_terminal_with_one_writable_mount(case: ContainerInputs) -> None:
    for runtime in RUNTIMES:
        argv = runtime.command(case).argv
        ours = argv[: argv.index("python3")]
        assert argv[-3:] == ("-s", "-m", "suite.worker")
        assert network_is_off(argv, runtime)
        scratch = next(str(mount.source) for mount in case.mounts if mount.writable)
        assert writable_binds(argv, runtime, case) == [scratch]
        forbidden = {"-t", "-it", "-ti", "--tty", "--pty", "--privileged", "--rw", "--writable", "--root"}
        forbidden |= {"--cap-add", "--add-caps", "--fakeroot", "--writable-tmpfs", "--rm", "--volume", "-v"}
        assert not forbidden & set(ours)
        assert not [
            argument
            for argument in ours
            if argument.startswith(("--privileged", "--cap-add", "--tty", "--pty"))
        ]
        assert not [
            argument for argument in ours if argument in ("--container-writable", "--container-remap-root")
        ]


@pytest.mark.parametrize("runtime", RUNTIMES[:6], ids=lambda runtime: runtime.name)
def test_engines_drop_all_capabilities(runtime: Runtime) -> None:
    argv = runtime.command(inputs()).argv
    pairs = set(pairwise(argv))
    wanted = {("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges"), ("--user", "1000:1000")}
    assert wanted <= pairs
    assert ("--pull", "never") in pairs
    assert "--read-only" in argv


def test_inputs_without_exactly_one_writable_mount_are_refused() -> None:
    one = Mount(Path("/a"), "/a", writable=True)
    for mounts in ((), (one, Mount(Path("/b"), "/b", writable=True))):
        with pytest.raises(CannotRun, match="exactly one writable mount"):
            ContainerInputs(
                image=IMAGE, name="xy", environment={}, mounts=mounts, user=(1, 1), directory=Path("/")
            )


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("user", (0, 0), "not root, found 0"),
        ("name", "a b", "'a b'"),
        ("name", "--rm", "'--rm'"),
        ("image", "--privileged", "'--privileged'"),
        ("environment", {"A=B": "c"}, "'A=B'"),
        ("devices", ('0"', "1"), '0"'),
        ("devices", ("all,1",), "all,1"),
    ],
)
def test_inputs_that_would_become_options_are_refused(field: str, value: object, found: str) -> None:
    good = {"image": IMAGE, "name": "xy", "environment": {}, "user": (1, 1), "directory": Path("/")}
    good["mounts"] = (Mount(Path("/a"), SCRATCH, writable=True),)
    ContainerInputs(**good)  # type: ignore[arg-type]
    with pytest.raises(CannotRun, match=f"{field}: expected") as caught:
        ContainerInputs(**{**good, field: value})  # type: ignore[arg-type]
    assert found in str(caught.value)


@pytest.mark.parametrize("runtime", [Apptainer(), Enroot(), Pyxis()], ids=lambda runtime: runtime.name)
def test_separator_in_a_path_is_refused(runtime: Runtime) -> None:
    case = ContainerInputs(
        image=SQSH,
        name="xy",
        environment={},
        mounts=(Mount(Path("/a:b"), SCRATCH, writable=True),),
        user=(1, 1),
        directory=Path("/"),
    )
    with pytest.raises(CannotRun, match="takes ':' for a separator"):
        runtime.command(case)


def test_pyxis_refuses_references_and_variables_of_srun() -> None:
    with pytest.raises(CannotRun, match="absolute path of a squashfs file"):
        Pyxis().command(inputs("nvcr.io#nvidia/pytorch:26.08-py3"))
    good = inputs(SQSH)
    bad = ContainerInputs(
        **{name: getattr(good, name) for name in good.__slots__ if name != "environment"},
        environment={"PATH": "/opt"},
    )
    with pytest.raises(CannotRun, match="PATH would change srun"):
        Pyxis().command(bad)


def test_client_environment_has_only_the_address_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/other.sock")
    monkeypatch.setenv("LD_PRELOAD", "/tmp/shim.so")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert Docker().command(inputs()).environment == {
        "PATH": "/usr/bin",
        "DOCKER_HOST": "unix:///run/other.sock",
    }


def test_limit_that_nothing_enforces_is_refused_with_the_reason() -> None:
    assert unenforced_limits(Docker(), LIMITS) is None
    assert unenforced_limits(Enroot(), Limits()) is None
    refused = unenforced_limits(Enroot(), Limits.parse(cpus=2))
    assert refused is not None
    assert "enroot does not enforce cpus (it has no option for it)" in refused
    refused = unenforced_limits(Apptainer(), LIMITS)
    assert refused is not None
    assert "shm_bytes" in refused
    assert "memory_bytes" not in refused
    every = {"cpus", "cpuset", "memory_bytes", "shm_bytes"}
    assert every <= set(Enroot().not_enforced)
    assert every <= set(Pyxis().not_enforced)


@pytest.mark.parametrize(
    ("given_as", "wanted"),
    [
        ({"cpus": 2}, Limits(cpus="2")),
        ({"cpus": "1.50"}, Limits(cpus="1.5")),
        ({"cpus": 10}, Limits(cpus="10")),
        ({"cpuset": [3, 1, 0]}, Limits(cpuset="0-1,3")),
        ({"cpuset": "0-1, 2"}, Limits(cpuset="0-2")),
        ({"cpuset": 1}, Limits(cpuset="1")),
        ({"cpuset": "[0,1]"}, Limits(cpuset="0-1")),
        ({"memory": "8g"}, Limits(memory_bytes=8 << 30)),
        ({"memory": "1.5GiB"}, Limits(memory_bytes=3 << 29)),
        ({"shm_size": 65536}, Limits(shm_bytes=65536)),
        ({}, Limits()),
    ],
)
def test_limits_are_normalised(given_as: Mapping[str, object], wanted: Limits) -> None:
    assert Limits.parse(**given_as) == wanted


@pytest.mark.parametrize(
    "given_as",
    [
        *({"cpus": argument} for argument in (0, -1, True, "two", "nan", "inf", 0.001)),
        *({"cpuset": argument} for argument in ("", "1-", "a", [-1], True, [])),
        *({"memory": argument} for argument in ("8x", 0, "-1g", True, "", "g")),
    ],
)
def test_values_that_are_no_limits_are_refused(given_as: Mapping[str, object]) -> None:
    with pytest.raises(CannotRun, match=f"{next(iter(given_as))}: expected"):
        Limits.parse(**given_as)


def test_several_nodes_have_the_network_and_infiniband_devices_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    ours = replace(inputs("/i.sqsh"), host_network=True, infiniband=("/dev/infiniband/uverbs0",))
    for runtime in (Docker("cdi"), Podman()):
        argv = runtime.command(ours).argv
        assert argv[argv.index("--network") + 1] == "host"
        assert ("--device", "/dev/infiniband/uverbs0") in set(pairwise(argv))
    assert "--network" not in Apptainer().command(ours).argv
    assert {"--overlap", "--nodelist=n7"} <= set(Pyxis().command(ours).argv)
