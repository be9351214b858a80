"""Ctrl-C, SIGTERM, a closed terminal: one :class:`Interrupted` a run, never in the middle of a log's line."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """One of :data:`SIGNALS` reached the harness."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Interrupts:
    """Turns the first signal into :class:`Interrupted`, from :meth:`release` until :meth:`stop`.

    Later ones change nothing: the run is being ended already. Use as a context manager in the main thread;
    leaving it puts the handlers back.
    """

    def __init__(self) -> None:
        self._holds = 1
        self._pending: int | None = None
        self._over = False
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupts:
        for number in SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup asked for it
            self._previous[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # as signal.signal gave it

    def release(self) -> None:
        """Let signals interrupt; raises at once where one has come already."""
        self._holds -= 1
        if self._holds == 0 and self._pending is not None:
            self._arrived(self._pending, None)

    @contextmanager
    def held(self) -> Iterator[None]:
        """What happens inside is not cut in two: a signal interrupts behind it."""
        self._holds += 1
        try:
            yield
        finally:
            self.release()

    def stop(self) -> None:
        """From here on nothing interrupts: the last words of the record are being written."""
        self._over = True

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._over:
            return
        if self._holds:
            self._pending = number
            return
        self._over = True
        raise Interrupted(number)
