"""One sandbox for each core."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

from suite.sandbox.sandbox import Sandbox

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def in_sandboxes(tasks: str, work: Callable[[Sandbox, Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """What ``work`` answers for each of the ``items``, in their order; each core has a sandbox for ``tasks``.

    ``work`` runs in several threads. An exception of it ends the work on the others and is raised.
    """
    local, lock = threading.local(), threading.Lock()
    with ExitStack() as sandboxes:

        def answer(item: Item) -> Answer:
            if not hasattr(local, "sandbox"):
                local.sandbox = Sandbox(tasks).__enter__()
                with lock:
                    sandboxes.callback(local.sandbox.close)
            return work(local.sandbox, item)

        with ThreadPoolExecutor(min(len(items), os.cpu_count() or 1) or 1) as pool:
            return list(pool.map(answer, items))
