"""Shared libraries that a framework on a GPU looks for by name, in its environment or the loader's path."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes.util import find_library

from suite.contract.traits import framework_names, traits_of
from suite.doctor.model import FAIL, OK, SKIP, DoctorCheck, Subject
from suite.environments import environments

NAME = "GPU libraries"


def loadable(subject: Subject) -> Iterator[DoctorCheck]:
    """Whether the environments for a GPU find the libraries of ``Traits.libraries``."""
    if not subject.machine.gpus:
        yield DoctorCheck(NAME, SKIP, "no GPU")
        return
    for framework in subject.frameworks or framework_names():
        wanted = traits_of(framework).libraries.get("cuda", ())
        if wanted and "cuda" in environments.accelerators(framework):
            yield _of_environment(environments.plan(framework, "cuda"), framework, wanted)


def _of_environment(
    plan: environments.EnvironmentPlan, framework: str, wanted: tuple[str, ...]
) -> DoctorCheck:
    name = f"{NAME} {framework}"
    command = f"make environments FRAMEWORK={framework} ACCELERATOR=cuda"
    if not plan.ready:
        return DoctorCheck(name, SKIP, f"{plan.name} is not made yet: `{command}` makes it")
    missing, found = [], []
    for library in wanted:
        wheels = plan.folder.glob(f"lib/python*/site-packages/nvidia/*/lib/lib{library}.so.*")
        if file := next(iter(sorted(wheels)), None):
            found.append(f"{file.name} in {plan.name}")
        elif on_path := find_library(library):
            found.append(f"{on_path} on the loader's path")
        else:
            missing.append(f"lib{library}")
    if missing:
        text = f"expected {', '.join(missing)} in {plan.name} or on the loader's path, found none"
        return DoctorCheck(name, FAIL, text, f"rm -r {plan.folder}, then `{command} FETCH=1`")
    return DoctorCheck(name, OK, ", ".join(found))
