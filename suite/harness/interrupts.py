"""Ctrl-C, SIGTERM, a closed terminal: one :class:`Interrupted` per run, never within a log line."""

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

    Later signals have no effect: the run is ending already. Use it as a context manager in the main thread;
    on exit it restores the handlers.
    """

    def __init__(self) -> None:
        self._holds = 1
        self._pending: int | None = None
        self._over = False
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupts:
        for number in SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup ignores it
            self._previous[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # as signal.signal gave it

    def release(self) -> None:
        """Let signals interrupt; raises at once if a signal is pending."""
        self._holds -= 1
        if self._holds == 0 and self._pending is not None:
            self._arrived(self._pending, None)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay signals until the end of the ``with`` block."""
        self._holds += 1
        try:
            yield
        finally:
            self.release()

    def stop(self) -> None:
        """Ignore signals from now on: the end of the log is being written."""
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
