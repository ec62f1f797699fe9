"""The process that drives Ray Data for a run: it gets what is to be done, and gives back what came of each part.

    python -P -m prill.scoring.ray_driver SOCKET

`prill.scoring.ray_data` starts it and talks to it, in the frames of `prill.scoring.process`. It ends when the other end is
closed.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from prill.errors import PrillError, UsageError
from prill.scoring.line import pickled, wait_for_pickle
from prill.scoring.ray_data import AllDone, NotStarted, RaySpec, Run

if TYPE_CHECKING:
    import pyarrow

    from prill.protocols import Work

# Of the two parts that a worker has at a time, one begins while the last, slow answers of the other are still to come.
_PARTS_AT_A_TIME = 2
_OBJECT_STORE = 256 << 20  # bytes: what travels is where trajectories stand, not the trajectories


def main(words: Sequence[str]) -> None:
    """Has the run done that comes from the socket of that number."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = socket.socket(fileno=int(words[0]))
    messages = end.makefile("rb")
    spec = wait_for_pickle(messages)
    if not isinstance(spec, RaySpec):
        return
    try:
        workers = start(spec)
    except PrillError as error:
        end.sendall(pickled(error))
        return
    end.sendall(pickled(workers))
    wanted = wait_for_pickle(messages)
    ending = threading.Thread(target=_end_with, args=(end,), daemon=True)  # an error that nobody expects ends the process, too
    ending.start()
    if isinstance(wanted, Run):
        try:
            for done in run(spec, workers, wanted):
                end.sendall(pickled(done))
            end.sendall(pickled(AllDone()))
        except PrillError as error:
            end.sendall(pickled(error))
    ending.join()


def _end_with(other: socket.socket) -> None:
    """Ends Ray, and this process, when the other end is closed."""
    import ray

    with suppress(ConnectionError):  # it was killed before it had read everything
        other.recv(1)
    ray.shutdown()
    os._exit(0)  # also where the run is in the middle of something


def start(spec: RaySpec) -> int:
    """Starts Ray, or joins the cluster; how many workers there will be. Raises UsageError where none has place."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a worker without GPUs leaves CUDA's variables alone
    # On a busy machine Ray's own helpers need more than the 30 seconds after which it would give up.
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
        # Without "local", Ray would join a cluster that `ray start` has left on this machine, and refuse these settings.
        settings |= {"address": "local", "include_dashboard": False, "object_store_memory": _OBJECT_STORE}
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
            f"there is no place for a worker of {spec.cpus:g} cores and {spec.gpus:g} GPUs: Ray has "
            f"{there.get('CPU', 0):g} cores and {there.get('GPU', 0):g} GPUs",
            parameters=("engine",),
        )
    return spec.workers or room


def run(spec: RaySpec, workers: int, wanted: Run) -> Iterator[bytes]:
    """What came of each part, as it is there. Raises PrillError where Ray gives up."""
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    # What ends a run is raised here, in one line; of a run that is given up, Ray Data would log pages of traces.
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    parts = [{"part": part} for part in wanted.parts]
    done = ray.data.from_items(parts, override_num_blocks=len(parts)).map_batches(
        _Actor,
        fn_constructor_kwargs={"work": wanted.work},
        batch_size=None,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(
            size=min(workers, len(parts)),
            max_tasks_in_flight_per_actor=2 * _PARTS_AT_A_TIME,
            max_concurrent_calls_per_actor=_PARTS_AT_A_TIME,
        ),
        num_cpus=spec.cpus,
        num_gpus=spec.gpus or None,
    )
    try:
        for batch in done.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from batch["done"].to_pylist()
    except ray.exceptions.RayError as error:
        raise PrillError(f"Ray gave up: {_first_line(error)}; the same command goes on where this run ended") from error


def _no_start(spec: RaySpec, error: Exception) -> UsageError:
    """What is said where Ray cannot be started, or the cluster cannot be joined."""
    if spec.address is not None:
        return UsageError(f"Ray at {spec.address}: {_first_line(error)}", parameters=("address",))
    return NotStarted(
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


if __name__ == "__main__":
    # By its own name: what goes from here to Ray's workers is found there by it.
    from prill.scoring.ray_driver import main as by_name

    by_name(sys.argv[1:])
