"""The Ray engine: each worker is an actor that makes many calls at a time."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any

from msgspec import Meta

from prill.errors import MissingExtraError, PrillError, UsageError
from prill.protocols import Work

_MAX_LOSSES = 3  # times that a worker may die, and a call with it, before the run fails
_OBJECT_STORE = 256 << 20  # bytes: workers are sent trajectories without their images


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


_ALONE = RaySpec()


class RayEngine:
    """Makes the calls by Ray actors. Raises MissingExtraError if Ray is not installed."""

    def __init__(self, spec: RaySpec = _ALONE) -> None:
        if find_spec("ray") is None:
            raise MissingExtraError("ray", "ray")
        self.spec = spec
        self._actors: list[Any] = []
        self._busy = Counter[int]()
        self._work: Any = None
        self._has_begun = False

    def start(self) -> int:
        """Starts Ray, or joins the cluster that is named or was joined by this process.

        Returns the number of workers. Raises UsageError if Ray does not start, or has no resources
        for a worker.
        """
        # workers without GPUs keep CUDA's environment variables
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        # On a busy machine, Ray's helper processes need more than the default timeout of 30 s.
        os.environ.setdefault("RAY_agent_register_timeout_ms", "300000")
        # Late requests of a cancelled run would otherwise start Ray again.
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
        import ray

        spec = self.spec
        if not ray.is_initialized():
            self._join(ray)
        there = ray.cluster_resources()
        room = int(there.get("CPU", 0))
        if spec.gpus:
            room = min(room, int(there.get("GPU", 0) / spec.gpus))
        if room < 1:
            self.close()
            raise UsageError(
                f"no resources for a worker with a core and {spec.gpus:g} GPUs: Ray "
                f"has {there.get('CPU', 0):g} cores and {there.get('GPU', 0):g} GPUs",
                parameters=("engine",),
            )
        # A worker that dies is started again, and so are its calls.
        actor = ray.remote(
            num_cpus=1,
            num_gpus=spec.gpus or None,
            max_restarts=_MAX_LOSSES - 1,
            max_task_retries=_MAX_LOSSES - 1,
        )(_Worker)
        self._actors = [actor.remote() for _ in range(min(spec.workers or room, room))]
        return len(self._actors)

    def _join(self, ray: Any) -> None:
        spec = self.spec
        settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if spec.address is not None:
            settings["address"] = spec.address
        else:
            # Workers mostly wait for answers, so the user may choose more workers than cores.
            settings["num_cpus"] = max(os.cpu_count() or 1, spec.workers or 0)
            # Without "local", Ray would join a cluster that `ray start` has started on this
            # machine, and reject these settings.
            settings |= {
                "address": "local",
                "include_dashboard": False,
                "object_store_memory": _OBJECT_STORE,
            }
        try:
            ray.init(**settings)
        except Exception as error:  # Ray also raises plain exceptions, for example on a timeout
            raise _no_start(spec, error) from error
        self._has_begun = True

    async def call(self, work: Work, part: bytes) -> bytes:
        """Makes a call by the worker with the fewest calls under way.

        Raises PrillError if the worker has died too often, or Ray failed.
        """
        import ray

        if self._work is None:
            self._work = ray.put(pickle.dumps(work))
        chosen = min(range(len(self._actors)), key=self._busy.__getitem__)
        self._busy[chosen] += 1
        try:
            result: bytes = await self._actors[chosen].call.remote(self._work, part)
            return result
        except ray.exceptions.RayError as error:
            raise PrillError(
                f"Ray stopped: {_first_line(error)}; run the same command again to resume"
            ) from error
        finally:
            self._busy[chosen] -= 1

    def close(self) -> None:
        """Ends the workers, and Ray if this engine started or joined it; safe to call twice."""
        import ray

        actors, self._actors, self._work = self._actors, [], None
        for actor in actors:
            ray.kill(actor)
        if self._has_begun:
            self._has_begun = False
            ray.shutdown()


class _Worker:
    """A worker, in a process of its own."""

    def __init__(self) -> None:
        self._pickled = b""
        self._work: Any = None

    async def call(self, pickled: bytes, part: bytes) -> bytes:
        """Makes one call."""
        if pickled != self._pickled:
            self._pickled, self._work = pickled, pickle.loads(pickled)
        done: bytes = await self._work(part)
        return done


def _no_start(spec: RaySpec, error: Exception) -> UsageError:
    """Returns the error for a failed start of Ray, or a cluster that cannot be joined."""
    if spec.address is not None:
        return UsageError(f"Ray at {spec.address}: {_first_line(error)}", parameters=("address",))
    return UsageError(
        f"Ray did not start on this machine ({_first_line(error).rstrip('.')}); try again "
        "when the machine is less busy, or score without an engine",
        parameters=("engine",),
    )


def _first_line(error: Exception) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )
