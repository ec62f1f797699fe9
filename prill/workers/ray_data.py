"""Ray Data as an engine: parts of a run are the rows of a data set, mapped by a pool of our own asynchronous actors."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from prill.errors import MissingExtra, PrillError, UsageError
from prill.protocols import Work

if TYPE_CHECKING:
    import pyarrow

# Of the two parts that a worker has at a time, one begins while the last, slow answers of the other are still to come.
_PARTS_AT_A_TIME = 2
_OBJECT_STORE = 256 << 20  # bytes: what travels is where trajectories stand, not the trajectories


@dataclass(frozen=True, kw_only=True)
class RaySpec:
    """How many workers there are, what each one needs, and where they run."""

    workers: Annotated[int | None, Meta(ge=1, description="processes that work (default: what there are cores for)")] = None
    cpus: Annotated[float, Meta(gt=0, description="cores for each worker")] = 1.0
    gpus: Annotated[float, Meta(ge=0, description="GPUs for each worker: for models that run in it")] = 0.0
    address: Annotated[
        str | None, Meta(description="the cluster, auto or HOST:PORT (default: Ray is started on this machine, for this run)")
    ] = None


_ALONE = RaySpec()


class RayEngine:
    """Works off a run by Ray Data. Raises MissingExtra where Ray is not installed."""

    def __init__(self, spec: RaySpec = _ALONE) -> None:
        if find_spec("ray") is None or find_spec("pyarrow") is None:
            raise MissingExtra("ray", "ray")
        self.spec = spec
        self._workers = 0
        self._started_here = False

    def start(self) -> int:
        """Starts Ray, or joins the cluster; how many workers there will be. Raises UsageError where none has place."""
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a worker without GPUs leaves CUDA's variables alone
        # On a busy machine Ray's own helpers need more than the 30 seconds after which it would give up.
        os.environ.setdefault("RAY_agent_register_timeout_ms", "300000")
        # What a run that is given up still asks of Ray would start it once more.
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
        import ray

        spec = self.spec
        if not ray.is_initialized():
            settings: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False, "include_dashboard": False}
            if spec.address is not None:
                settings = {"address": spec.address, "logging_level": "ERROR", "log_to_driver": False}
            else:
                # Workers wait for answers most of the time: more of them than cores is for the user to say.
                wanted = (spec.workers or 0) * spec.cpus
                settings |= {"num_cpus": max(os.cpu_count() or 1, -int(-wanted // 1)), "object_store_memory": _OBJECT_STORE}
            try:
                ray.init(**settings)
            except Exception as error:  # Ray raises plain ones too: where it is not up in time, say
                raise _no_start(spec, error) from error
            self._started_here = True
        there = ray.cluster_resources()
        room = int(there.get("CPU", 0) / spec.cpus)
        if spec.gpus:
            room = min(room, int(there.get("GPU", 0) / spec.gpus))
        if spec.workers is None and room < 1:
            raise UsageError(
                f"there is no place for a worker of {spec.cpus:g} cores and {spec.gpus:g} GPUs: Ray has "
                f"{there.get('CPU', 0):g} cores and {there.get('GPU', 0):g} GPUs",
                parameters=("engine",),
            )
        self._workers = spec.workers or room
        return self._workers

    def run(self, work: Work, parts: Sequence[bytes]) -> Iterator[bytes]:
        """What came of each part, as it is there."""
        import ray.data

        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        # What ends a run is raised here, in one line; of a run that is given up, Ray Data would log pages of traces.
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        workers = min(self._workers, len(parts))
        done = ray.data.from_items([{"part": part} for part in parts], override_num_blocks=len(parts)).map_batches(
            _Actor,
            fn_constructor_kwargs={"work": pickle.dumps(work)},
            batch_size=None,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(
                size=workers,
                max_tasks_in_flight_per_actor=2 * _PARTS_AT_A_TIME,
                max_concurrent_calls_per_actor=_PARTS_AT_A_TIME,
            ),
            num_cpus=self.spec.cpus,
            num_gpus=self.spec.gpus or None,
        )
        try:
            for batch in done.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                yield from batch["done"].to_pylist()
        except ray.exceptions.RayError as error:
            raise PrillError(f"Ray gave up: {_first_line(error)}; the same command goes on where this run ended") from error

    def close(self) -> None:
        """Ends Ray, where this has started it."""
        if self._started_here:
            import ray

            self._started_here = False
            ray.shutdown()


def _no_start(spec: RaySpec, error: Exception) -> UsageError:
    """What is said where Ray cannot be started, or the cluster cannot be joined."""
    if spec.address is not None:
        return UsageError(f"Ray at {spec.address}: {_first_line(error)}", parameters=("address",))
    return UsageError(
        f"Ray did not start on this machine ({_first_line(error).rstrip('.')}); try again when the machine is less busy, or "
        "have several processes judge, without an engine",
        parameters=("engine",),
    )


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class _Actor:
    """One worker: its event loop has all calls of the parts that it is at."""

    def __init__(self, work: bytes) -> None:
        self._work: Work = pickle.loads(work)

    async def __call__(self, batch: pyarrow.Table) -> AsyncIterator[pyarrow.Table]:
        import pyarrow

        for part in batch["part"].to_pylist():
            yield pyarrow.table({"done": pyarrow.array([await self._work(part)], pyarrow.binary())})
