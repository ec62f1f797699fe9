"""The Ray engine: each shard is a task.

Ray runs in a separate driver process. If a Ray server is lost, Ray ends its driver without an
exception that could be caught, so the driver must not be the process that collects the verdicts.
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

_TO_END = 30.0  # seconds for Ray to end its workers
_OBJECT_STORE = (
    256 << 20
)  # bytes: messages contain the positions of trajectories, not the trajectories


@dataclass(frozen=True, kw_only=True)
class RaySpec:
    """The number of Ray workers, their resources and the cluster."""

    workers: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Number of worker processes (default: as many as there are cores for).",
        ),
    ] = None
    cpus: Annotated[float, Meta(gt=0, description="CPU cores per worker.")] = 1.0
    gpus: Annotated[
        float, Meta(ge=0, description="GPUs per worker, for models that run in it.")
    ] = 0.0
    address: Annotated[
        str | None,
        Meta(
            description="Address of the cluster: auto or HOST:PORT (default: Ray is "
            "started on this machine, for this run)."
        ),
    ] = None


class NotStartedError(UsageError):
    """Raised if Ray did not start on this machine."""


_ALONE = RaySpec()


class RayEngine:
    """Runs shards as Ray tasks. Raises MissingExtraError if Ray is not installed."""

    def __init__(self, spec: RaySpec = _ALONE) -> None:
        if find_spec("ray") is None:
            raise MissingExtraError("ray", "ray")
        self.spec = spec
        self._driver: _Driver | None = None

    def start(self) -> int:
        """Starts Ray or joins the cluster; returns the number of workers.

        Raises UsageError if there are no resources for a worker, or if Ray failed to start twice.
        """
        try:
            return self._start()
        # Ray times out after half a minute on a busy machine; the second attempt is faster, because
        # its files are then cached
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
        """Yields the result of each shard when it is finished. Raises PrillError if Ray fails or is
        lost.
        """
        assert self._driver is not None
        self._driver.child.send((pickle.dumps(work), tuple(parts)))
        for _ in parts:
            yield self._driver.answer()

    def close(self) -> None:
        """Stops Ray, if this engine started it."""
        if self._driver is not None:
            self._driver.end()


def _own_cluster() -> str | None:
    """Returns the cluster that this process has already joined, or None."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    address: str = ray.get_runtime_context().gcs_address
    return address


class _Driver:
    """The process that runs Ray. `is_ready`: Ray has started there."""

    def __init__(self, spec: RaySpec) -> None:
        self.is_ready = self._is_over = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in the end
        self.child = Child(drive, self._log)
        self.child.send(spec)

    def answer(self) -> Any:
        """Returns its next message.

        Raises an exception that it sends, and PrillError if the process has ended.
        """
        message = self.child.answer()
        if message is None:
            raise PrillError("the run was cancelled") if self._is_over else self._loss()
        if isinstance(message, PrillError):
            raise message
        return message

    def end(self) -> None:
        """Lets the process end, immediately if Ray has not started; safe to call twice."""
        if not self._is_over:
            self._is_over = True
            # End all Ray processes started here, so that no worker continues to judge after the
            # run.
            self.child.end(_TO_END if self.is_ready else 0.0)
            self._log.close()

    def _loss(self) -> PrillError:
        """Returns the error for a lost driver; Ray's output is kept in a file."""
        with suppress(TimeoutExpired):
            self.child.process.wait(1)  # its pipe closes before the process has ended
        with tempfile.NamedTemporaryFile(prefix="prill-ray-", suffix=".log", delete=False) as log:
            self._log.seek(0)
            shutil.copyfileobj(self._log, log)
        what = (
            "was lost: one of its servers was killed, or could not be reached"
            if self.is_ready
            else "did not start"
        )
        return PrillError(
            f"Ray {what}; its output is in {log.name}. Run the same command again to resume"
        )


def drive(commands: BinaryIO, answers: BinaryIO) -> None:
    """Runs the driver: starts Ray, sends the number of workers, and runs the shards."""
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

    ending = end_with(commands, ray.shutdown)  # also ends the process after an unexpected error
    if wanted is not None:
        try:
            for done in run(spec, *wanted):
                send(answers, done)
        except PrillError as error:
            send(answers, error)
    ending.join()


def start(spec: RaySpec) -> int:
    """Starts Ray or joins the cluster; returns the number of workers.

    Raises UsageError if there are no resources for a worker.
    """
    # workers without GPUs keep CUDA's environment variables
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # On a busy machine, Ray's helper processes need more than the default timeout of 30 seconds.
    os.environ.setdefault("RAY_agent_register_timeout_ms", "300000")
    # Late requests of a cancelled run would otherwise start Ray again.
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    import ray

    settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if spec.address is not None:
        settings["address"] = spec.address
    else:
        # Workers mostly wait for answers, so the user may choose more workers than cores.
        wanted = (spec.workers or 0) * spec.cpus
        settings["num_cpus"] = max(os.cpu_count() or 1, -int(-wanted // 1))
        # Without "local", Ray would join a cluster that `ray start` has started on this machine,
        # and reject these settings.
        settings |= {
            "address": "local",
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE,
        }
    try:
        ray.init(**settings)
    except Exception as error:  # Ray also raises plain exceptions, for example on a timeout
        raise _no_start(spec, error) from error
    there = ray.cluster_resources()
    room = int(there.get("CPU", 0) / spec.cpus)
    if spec.gpus:
        room = min(room, int(there.get("GPU", 0) / spec.gpus))
    if spec.workers is None and room < 1:
        raise UsageError(
            f"no resources for a worker with {spec.cpus:g} cores and {spec.gpus:g} GPUs: Ray "
            f"has {there.get('CPU', 0):g} cores and {there.get('GPU', 0):g} GPUs",
            parameters=("engine",),
        )
    return spec.workers or room


def run(spec: RaySpec, work: bytes, parts: Sequence[bytes]) -> Iterator[bytes]:
    """Yields the result of each shard when it is finished. Raises PrillError if Ray fails."""
    import ray

    # If a worker dies, a new one resumes its shard.
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
            f"Ray stopped: {_first_line(error)}; run the same command again to resume"
        ) from error


def _work(work: bytes, part: bytes) -> bytes:
    """Runs a Ray task."""
    done: bytes = asyncio.run(pickle.loads(work)(part))
    return done


def _no_start(spec: RaySpec, error: Exception) -> UsageError:
    """Returns the error for a failed start of Ray, or a cluster that cannot be joined."""
    if spec.address is not None:
        return UsageError(f"Ray at {spec.address}: {_first_line(error)}", parameters=("address",))
    return NotStartedError(
        f"Ray did not start on this machine ({_first_line(error).rstrip('.')}); try again "
        "when the machine is less busy, or use processes instead of an engine",
        parameters=("engine",),
    )


def _first_line(error: Exception) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )
