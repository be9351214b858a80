"""What the caches of PyTorch's compiler need so that repeats and later runs find the right code in them."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

import torch


def cache_autocast() -> None:
    """Let repeats after the first take graphs with autocast from the compilation cache of the run.

    PyTorch 2.13 traces them again in each process: it does not list these two private functions as safe.
    Their arguments are in the cached graph's key (pytorch/pytorch#191106), so a fixed key of their own does.
    """
    names = (f"torch.amp.autocast_mode.{name}" for name in ("_enter_autocast", "_exit_autocast"))
    marked = torch._inductor.config.unsafe_marked_cacheable_functions
    torch._inductor.config.unsafe_marked_cacheable_functions = {**marked, **dict.fromkeys(names, "1")}


def cache_by_source() -> None:
    """Let PyTorch's compilation cache return code only for the source code that it was made from.

    What is within an operator of the suite, such as its gradient, is compiled, but no part of the key: with
    ``reuse_compiled`` a changed suite would compute what an earlier one did (PyTorch 2.11). The processes in
    which PyTorch compiles kernels, and which it starts later, read the variable: without it the fastest
    variant of a kernel would be stored under another key, and be searched for again by each repeat.
    """
    torch.compiler.config.cache_key_tag = os.environ["TORCH_COMPILE_CACHE_KEY_TAG"] = sources()


@functools.cache
def sources() -> str:
    """SHA-256 of the source code of all pairs and of what they use."""
    suite, digest = Path(__file__).parents[2], hashlib.sha256()
    parts = ("common", "contract", "frameworks", "workloads")
    for file in sorted(file for part in parts for file in (suite / part).rglob("*.py")):
        digest.update(f"{file.relative_to(suite)} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
