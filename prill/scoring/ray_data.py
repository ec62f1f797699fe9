"""Ray Data as an engine: parts of a run are the rows of a data set, mapped by a pool of our own asynchronous actors.

Ray is driven by a process of its own (`prill.scoring.ray_driver`). Where one of Ray's servers is lost, Ray ends the process
that drives it, without any error that could be caught; so that is not the process that gathers verdicts.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Annotated, Any

from msgspec import Meta

from prill.errors import MissingExtra, PrillError, UsageError
from prill.protocols import Work
from prill.scoring.line import pickled, wait_for_pickle

_TO_END = 30.0  # seconds that Ray has to end its workers


@dataclass(frozen=True, kw_only=True)
class RaySpec:
    """How many workers there are, what each one needs, and where they run."""

    workers: Annotated[int | None, Meta(ge=1, description="processes that work (default: what there are cores for)")] = None
    cpus: Annotated[float, Meta(gt=0, description="cores for each worker")] = 1.0
    gpus: Annotated[float, Meta(ge=0, description="GPUs for each worker: for models that run in it")] = 0.0
    address: Annotated[
        str | None, Meta(description="the cluster, auto or HOST:PORT (default: Ray is started on this machine, for this run)")
    ] = None


@dataclass(frozen=True, slots=True)
class Run:
    """What the driver is to have done: the pickled work, and the parts."""

    work: bytes
    parts: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class AllDone:
    """From the driver: these were all parts."""


class NotStarted(UsageError):
    """Ray did not start on this machine."""


_ALONE = RaySpec()


class RayEngine:
    """Works off a run by Ray Data. Raises MissingExtra where Ray is not installed."""

    def __init__(self, spec: RaySpec = _ALONE) -> None:
        if find_spec("ray") is None or find_spec("pyarrow") is None:
            raise MissingExtra("ray", "ray")
        self.spec = spec
        self._driver: _Driver | None = None

    def start(self) -> int:
        """Starts Ray, or joins the cluster; how many workers there will be. Raises UsageError where none has place, and where
        Ray did not start twice."""
        try:
            return self._start()
        except NotStarted:  # Ray gives a busy machine no more than half a minute; what it had to load then is there now
            return self._start()

    def _start(self) -> int:
        self.close()
        self._driver = driver = _Driver()
        driver.send(replace(self.spec, address=self.spec.address or _own_cluster()))
        workers: int = driver.answer()
        driver.is_ready = True
        return workers

    def run(self, work: Work, parts: Sequence[bytes]) -> Iterator[bytes]:
        """What came of each part, as it is there. Raises PrillError where Ray gives up, or is lost."""
        assert self._driver is not None
        self._driver.send(Run(pickle.dumps(work), tuple(parts)))
        while not isinstance(done := self._driver.answer(), AllDone):
            yield done

    def close(self) -> None:
        """Ends Ray, where this has started it."""
        if self._driver is not None:
            self._driver.end()


def _own_cluster() -> str | None:
    """The cluster that this process has joined already, where it has."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    address: str = ray.get_runtime_context().gcs_address
    return address


class _Driver:
    """The process that drives Ray. `is_ready`: Ray has started there."""

    def __init__(self) -> None:
        self.is_ready = self._is_over = False
        ours, theirs = socket.socketpair()
        words = [sys.executable, "-P", "-m", "prill.scoring.ray_driver", str(theirs.fileno())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in the end
        with theirs:
            # A group of its own: Ctrl-C in a terminal is for this process, which lets workers finish what is under way.
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=environment,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        self._socket, self._messages = ours, ours.makefile("rb")

    def send(self, message: object) -> None:
        """Sends it a message; where it is gone, `answer` tells."""
        with suppress(ConnectionError):
            self._socket.sendall(pickled(message))

    def answer(self) -> Any:
        """Its next message. Raises what it sends to be raised, and PrillError where it is gone."""
        message = wait_for_pickle(self._messages)
        if message is None:
            raise PrillError("the run was given up") if self._is_over else self._loss()
        if isinstance(message, PrillError):
            raise message
        return message

    def end(self) -> None:
        """Lets it end, at once where Ray has not started; safe to call twice."""
        if self._is_over:
            return
        self._is_over = True
        with suppress(OSError):  # the other end is closed already
            self._socket.shutdown(socket.SHUT_RDWR)
        if self.is_ready:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_TO_END)
        # All of Ray that was started here: a worker that has not noticed yet must not judge what nobody gathers.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._messages.close()
        self._socket.close()
        self._log.close()

    def _loss(self) -> PrillError:
        """What is said where it is gone. What Ray wrote, pages of it, is kept in a file."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)  # its socket is closed before it is gone
        with tempfile.NamedTemporaryFile(prefix="prill-ray-", suffix=".log", delete=False) as kept:
            self._log.seek(0)
            shutil.copyfileobj(self._log, kept)
        what = "was lost: one of its servers was killed, or could not be reached" if self.is_ready else "did not start"
        return PrillError(f"Ray {what}; what it wrote is in {kept.name}. The same command goes on where this run ended")
