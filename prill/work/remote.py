"""Judging and captioning by the workers of an engine.

A proxy replaces the judge or captioner in an ordinary run; only its calls are made by workers.
Reading, keys, resuming and writing remain in this process.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from prill.config.registry import load_file, loaded_files
from prill.errors import PrillError, UsageError
from prill.io.shards import packing_for
from prill.models.calls import Call, is_transcribed, note, transcribed
from prill.models.ledger import count_usage, metered
from prill.protocols import Captioner, Engine, Evaluator, unsupported_params
from prill.types import Observation, Trajectory, Usage, Verdict

T = TypeVar("T")
# Exceptions of pickle for objects that cannot be pickled or unpickled.
UNPICKLABLE = (
    pickle.PickleError,
    TypeError,
    AttributeError,
    ValueError,
    LookupError,
    RecursionError,
)


@dataclass(frozen=True)
class RemoteWork:
    """The work of an engine's workers: a pickled judge or captioner, and the files of its modules
    that belong to no package. Paths may be relative to `directory`.
    """

    name: str
    pickled: bytes
    files: tuple[str, ...]
    directory: str

    async def __call__(self, part: bytes) -> bytes:
        """Makes one call, and returns its outcome or the error that it raised."""
        is_noted, argument = pickle.loads(part)
        calls: list[Call] = []
        made: Any = None
        with metered() as meter:
            try:
                made = _unpack(self)
                if is_noted:
                    with transcribed() as calls:
                        result = await made(argument)
                else:
                    result = await made(argument)
            except Exception as error:  # noqa: BLE001 - the run handles it as one of its own
                result = _sendable(error)
        params = [] if made is None else unsupported_params(made)
        return pickle.dumps(_Outcome(result, tuple(calls), meter.usage, tuple(params)))


@dataclass(frozen=True)
class _Outcome:
    """The result of a call or its exception, the model calls, their usage, and rejected
    parameters.
    """

    result: Any
    calls: tuple[Call, ...]
    usage: Usage
    unsupported_params: tuple[str, ...]


@lru_cache(4)
def _unpack(work: RemoteWork) -> Any:
    """Unpickles a judge or captioner, once per worker, so that calls share connections and limits.

    Raises UsageError.
    """
    with suppress(OSError):
        os.chdir(work.directory)
    try:
        for file in work.files:
            load_file(Path(file))
        return pickle.loads(work.pickled)
    except (*UNPICKLABLE, ImportError) as error:
        raise _unfit(work.name, f"{type(error).__name__}: {error}") from None


def _sendable(error: Exception) -> Exception:
    """Returns an exception that can be pickled; one of a custom judge brings its traceback."""
    if not isinstance(error, PrillError):
        error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except UNPICKLABLE:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _unfit(name: str, problem: str) -> UsageError:
    return UsageError(
        f"{name} cannot be sent to other processes ({problem}); judge without an engine, or build "
        "it from classes and functions of an importable module",
        parameters=("engine",),
    )


class _Proxy:
    """Calls the workers of an engine, which starts with the first call."""

    def __init__(self, engine: Engine, thing: Any, name: str) -> None:
        self._engine, self._thing, self._name = engine, thing, name
        self._start: asyncio.Task[RemoteWork] | None = None
        self.unsupported_params: list[str] = []

    async def _ask(self, argument: Any) -> Any:
        if self._start is None:
            self._start = asyncio.create_task(self._begin())
        work = await asyncio.shield(self._start)
        part = pickle.dumps((is_transcribed(), argument))
        try:
            outcome: _Outcome = pickle.loads(await self._engine.call(work, part))
        except PrillError:
            raise
        except Exception as error:
            raise PrillError(
                f"the engine failed: {error!r}; run the same command again to resume"
            ) from error
        for call in outcome.calls:
            note(call)
        count_usage(outcome.usage)
        self.unsupported_params = list(
            dict.fromkeys([*self.unsupported_params, *outcome.unsupported_params])
        )
        if isinstance(outcome.result, Exception):
            raise outcome.result
        return outcome.result

    async def _begin(self) -> RemoteWork:
        """Starts the engine and packs the work for one of its workers. Raises UsageError."""
        workers = await asyncio.to_thread(self._engine.start)
        try:
            with packing_for(workers):
                pickled = pickle.dumps(self._thing)
        except UNPICKLABLE as error:
            raise _unfit(self._name, str(error)) from None
        return RemoteWork(self._name, pickled, tuple(map(str, loaded_files())), str(Path.cwd()))

    async def close(self) -> None:
        """Stops the engine, after its start has ended."""
        if self._start is not None:
            await asyncio.wait([self._start])
            self._engine.close()


class RemoteJudge(_Proxy):
    """A judge whose verdicts are made by the workers of an engine."""

    def __init__(self, engine: Engine, judge: Evaluator) -> None:
        super().__init__(engine, judge, f"judge {judge.info.name!r}")
        self.info, self._judge = judge.info, judge

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        """Returns the screenshots that the judge looks at."""
        return self._judge.screenshots(trajectory)

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        """Returns a worker's verdict; raises what the judge raised there."""
        verdict: Verdict = await self._ask(trajectory)
        return verdict


class RemoteCaptioner(_Proxy):
    """A captioner whose captions are made by the workers of an engine."""

    def __init__(self, engine: Engine, captioner: Captioner) -> None:
        super().__init__(engine, captioner, f"captioner {captioner.name}")
        self.name = captioner.name

    async def __call__(self, observation: Observation) -> str:
        """Returns a worker's caption; raises what the captioner raised there."""
        caption: str = await self._ask(observation)
        return caption


@asynccontextmanager
async def worked_by(
    engine: Engine | None, thing: T, proxy: Callable[[Engine, Any], _Proxy]
) -> AsyncIterator[T]:
    """Provides a judge or captioner, or its proxy if the workers of an engine make the calls."""
    if engine is None:
        yield thing
        return
    remote = proxy(engine, thing)
    try:
        yield cast(T, remote)
    finally:
        await remote.close()
