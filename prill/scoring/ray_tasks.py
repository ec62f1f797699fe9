"""The Ray engine: each shard is a task.

Ray is driven by a process of its own. Where one of Ray's servers is lost, Ray ends the process that
drives it, without any error that could be caught; so that is not the process that gathers verdicts.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from subprocess import TimeoutExpired
from typing import Annotated, Any, BinaryIO

from msgspec import Meta

from prill.errors import MissingExtraError, PrillError, UsageError
from prill.protocols import Work
from prill.scoring.processes import MAX_LOSSES, Child, end_with, receive, send

_TO_END = 30.0  # seconds that Ray has to end its workers
_OBJECT_STORE = 256 << 20  # bytes: what travels is where trajectories stand, not the trajectories


@dataclass(frozen=True, kw_only=True)
class RaySpec:
    """How many workers there are, what each one needs, and where they run."""

    workers: Annotated[
        int | None,
        Meta(ge=1, description="processes that work (default: what there are cores for)"),
    ] = None
    cpus: Annotated[float, Meta(gt=0, description="cores for each worker")] = 1.0
    gpus: Annotated[
        float, Meta(ge=0, description="GPUs for each worker: for models that run in it")
    ] = 0.0
    address: Annotated[
        str | None,
        Meta(
            description="the cluster, auto or HOST:PORT (default: Ray is started on this machine, "
            "for this run)"
        ),
    ] = None


class NotStartedError(UsageError):
    """Ray did not start on this machine."""


_ALONE = RaySpec()


class RayEngine:
    """Has shards done by tasks of Ray. Raises MissingExtraError where Ray is not installed."""

    def __init__(self, spec: RaySpec = _ALONE) -> None:
        if find_spec("ray") is None:
            raise MissingExtraError("ray", "ray")
        self.spec = spec
        self._driver: _Driver | None = None

    def start(self) -> int:
        """Starts Ray, or joins the cluster; how many workers there will be. Raises UsageError where
        none has place, and where Ray did not start twice.
        """
        try:
            return self._start()
        # Ray gives a busy machine no more than half a minute; what it had to load then is there now
        except NotStartedError:
            return self._start()

    def _start(self) -> int:
        self.close()
        self._driver = driver = _Driver(
            replace(self.spec, address=self.spec.address or _own_cluster())
        )
        workers: int = driver.answer()
        driver.is_ready = True
        return workers

    def run(self, work: Work, parts: Sequence[bytes]) -> Iterator[bytes]:
        """What came of each shard, as it ends. Raises PrillError where Ray gives up, or is lost."""
        assert self._driver is not None
        self._driver.child.send((pickle.dumps(work), tuple(parts)))
        for _ in parts:
            yield self._driver.answer()

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

    def __init__(self, spec: RaySpec) -> None:
        self.is_ready = self._is_over = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in the end
        self.child = Child(drive, self._log)
        self.child.send(spec)

    def answer(self) -> Any:
        """Its next message. Raises what it sends to be raised, and PrillError where it is gone."""
        message = self.child.answer()
        if message is None:
            raise PrillError("the run was given up") if self._is_over else self._loss()
        if isinstance(message, PrillError):
            raise message
        return message

    def end(self) -> None:
        """Lets it end, at once where Ray has not started; safe to call twice."""
        if not self._is_over:
            self._is_over = True
            # All of Ray that was started here: a worker that has not noticed yet must not judge
            # what nobody gathers.
            self.child.end(_TO_END if self.is_ready else 0.0)
            self._log.close()

    def _loss(self) -> PrillError:
        """What is said where it is gone. What Ray wrote, pages of it, is kept in a file."""
        with suppress(TimeoutExpired):
            self.child.process.wait(1)  # its pipe is closed before it is gone
        with tempfile.NamedTemporaryFile(prefix="prill-ray-", suffix=".log", delete=False) as kept:
            self._log.seek(0)
            shutil.copyfileobj(self._log, kept)
        what = (
            "was lost: one of its servers was killed, or could not be reached"
            if self.is_ready
            else "did not start"
        )
        return PrillError(
            f"Ray {what}; what it wrote is in {kept.name}. The same command goes on where this "
            "run ended"
        )


def drive(commands: BinaryIO, answers: BinaryIO) -> None:
    """What the driver does: starts Ray, tells how many workers there will be, and has shards
    done.
    """
    spec = receive(commands)
    if not isinstance(spec, RaySpec):
        return
    try:
        workers = start(spec)
    except PrillError as error:
        send(answers, error)
        return
    send(answers, workers)
    wanted = receive(commands)
    import ray

    ending = end_with(commands, ray.shutdown)  # an error that nobody expects ends the process, too
    if wanted is not None:
        try:
            for done in run(spec, *wanted):
                send(answers, done)
        except PrillError as error:
            send(answers, error)
    ending.join()


def start(spec: RaySpec) -> int:
    """Starts Ray, or joins the cluster; how many workers there will be. Raises UsageError where
    none has place.
    """
    # a worker without GPUs leaves CUDA's variables alone
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # On a busy machine Ray's own helpers need more than the 30 seconds after which it would give
    # up.
    os.environ.setdefault("RAY_agent_register_timeout_ms", "300000")
    # What a run that is given up still asks of Ray would start it once more.
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    import ray

    settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if spec.address is not None:
        settings["address"] = spec.address
    else:
        # Workers wait for answers most of the time: more of them than cores is for the user to say.
        wanted = (spec.workers or 0) * spec.cpus
        settings["num_cpus"] = max(os.cpu_count() or 1, -int(-wanted // 1))
        # Without "local", Ray would join a cluster that `ray start` has left on this machine, and
        # refuse these settings.
        settings |= {
            "address": "local",
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE,
        }
    try:
        ray.init(**settings)
    except Exception as error:  # Ray raises plain ones too: where it is not up in time, say
        raise _no_start(spec, error) from error
    there = ray.cluster_resources()
    room = int(there.get("CPU", 0) / spec.cpus)
    if spec.gpus:
        room = min(room, int(there.get("GPU", 0) / spec.gpus))
    if spec.workers is None and room < 1:
        raise UsageError(
            f"there is no place for a worker of {spec.cpus:g} cores and {spec.gpus:g} GPUs: Ray "
            "has "
            f"{there.get('CPU', 0):g} cores and {there.get('GPU', 0):g} GPUs",
            parameters=("engine",),
        )
    return spec.workers or room


def run(spec: RaySpec, work: bytes, parts: Sequence[bytes]) -> Iterator[bytes]:
    """What came of each shard, as it ends. Raises PrillError where Ray gives up."""
    import ray

    # A worker that dies is replaced, and the next one goes on in its shard.
    task = ray.remote(num_cpus=spec.cpus, num_gpus=spec.gpus or None, max_retries=MAX_LOSSES - 1)(
        _work
    )
    try:
        running = [task.remote(work, part) for part in parts]
        while running:
            [done], running = ray.wait(running)
            yield ray.get(done)
    except ray.exceptions.RayError as error:
        raise PrillError(
            f"Ray gave up: {_first_line(error)}; the same command goes on where this run ended"
        ) from error


def _work(work: bytes, part: bytes) -> bytes:
    """What a task does."""
    done: bytes = asyncio.run(pickle.loads(work)(part))
    return done


def _no_start(spec: RaySpec, error: Exception) -> UsageError:
    """What is said where Ray cannot be started, or the cluster cannot be joined."""
    if spec.address is not None:
        return UsageError(f"Ray at {spec.address}: {_first_line(error)}", parameters=("address",))
    return NotStartedError(
        f"Ray did not start on this machine ({_first_line(error).rstrip('.')}); try again when "
        "the machine is less busy, or "
        "have several processes judge, without an engine",
        parameters=("engine",),
    )


def _first_line(error: Exception) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )
