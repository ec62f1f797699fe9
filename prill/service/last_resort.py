"""Ends a process that does not shut down in time."""

from __future__ import annotations

import os
import threading


class LastResort:
    """Ends the process at the time that was set, by a thread: also where a judge holds the event
    loop, or does not listen to its cancellation, or keeps a thread that the interpreter would wait
    for.
    """

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def end_within(self, seconds: float, code: int = 1) -> None:
        """The process ends after so many seconds, with that exit code, unless `stop` is called
        before.
        """
        threading.Thread(
            target=self._wait, args=(seconds, code), name="prill-last-resort", daemon=True
        ).start()

    def stop(self) -> None:
        """The end came by itself."""
        self._stopped.set()

    def _wait(self, seconds: float, code: int) -> None:
        if not self._stopped.wait(seconds):
            os.write(2, b"prill serve: something does not end; the process ends now\n")
            os._exit(code)
