"""What every run shares: how it is called, the bridge from async to sync, the end of a page, and
how a result shows itself.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import signal
import threading
from collections.abc import Callable, Container, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec

from prill.config.registry import list_options
from prill.errors import UsageError
from prill.io.lines import held
from prill.io.store import BadLine
from prill.io.tables import VerdictFile, printable
from prill.types import LabelRecord, Trajectory, Verdict

if TYPE_CHECKING:
    import asyncio

    from prill.config.values import Config

RECORDS = (Trajectory, Verdict, LabelRecord, BadLine)
# Exit codes of commands; those that are an error's are in `prill.cli`.
EXIT_ALL, EXIT_SOME, EXIT_INTERRUPTED = 0, 3, 130

# A run that reads files needs neither an event loop nor a budget, so these are imported where they
# are used.
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
log = logging.getLogger("prill.runs")


def result_dict(result: Any) -> dict[str, Any]:
    """Returns the fields of a result, besides its configuration, as a JSON object."""
    names = [part.name for part in fields(result) if part.name != "config"]
    return {name: msgspec.to_builtins(getattr(result, name)) for name in names}


def _in_loop() -> bool:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def run_outside_loop(run: Callable[[], R]) -> R:
    """Runs work that starts its own event loop.

    It runs in a thread if a loop is already running, as in a notebook.
    """
    from concurrent.futures import ThreadPoolExecutor

    if not _in_loop():
        return run()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


@contextlib.contextmanager
def on_interrupt(handler: Callable[[], object]) -> Iterator[None]:
    """Calls the handler at Ctrl-C and SIGTERM, in the loop of the main thread."""
    import asyncio

    loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def stopped(by: asyncio.Event | None) -> Iterator[asyncio.Event]:
    """Yields the event that ends a page: `by`, or one that Ctrl-C and SIGTERM set."""
    import asyncio

    stop = by or asyncio.Event()
    is_main = threading.current_thread() is threading.main_thread()
    with on_interrupt(stop.set) if by is None and is_main else contextlib.nullcontext():
        yield stop


def wait_for(run: Callable[[], Coroutine[Any, Any, R]]) -> R:
    """Runs a coroutine and returns its result, also in a notebook with a running event loop.

    An interrupt cancels the coroutine in both cases. Raises KeyboardInterrupt if it was cancelled.
    """
    import asyncio

    if not _in_loop():
        try:
            return asyncio.run(run())
        except asyncio.CancelledError:
            raise KeyboardInterrupt(
                "cancelled the calls in progress; the same command resumes the run"
            ) from None
    from concurrent.futures import ThreadPoolExecutor

    cancel: list[Callable[[], object]] = []
    interrupted = threading.Event()

    async def cancellable() -> R:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            cancel.append(lambda: loop.call_soon_threadsafe(task.cancel))
        if interrupted.is_set():  # the interrupt came before the task existed
            raise asyncio.CancelledError
        return await run()

    with ThreadPoolExecutor(1) as thread:
        try:  # an interrupt may come before this thread waits
            return thread.submit(lambda: asyncio.run(cancellable())).result()
        except KeyboardInterrupt:
            interrupted.set()
            for end in cancel:
                end()
            raise


class Run(Protocol[P, R_co]):
    """What `run` makes: called with its configuration or with the fields of one, and values."""

    @overload
    def __call__(self, *args: P.args, **fields: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, *values: Any, **fields: Any) -> R_co: ...

    @overload
    async def run_async(self, *args: P.args, **fields: P.kwargs) -> R_co: ...
    @overload
    async def run_async(self, *values: Any, **fields: Any) -> R_co: ...


class _Decorator(Protocol[P]):
    @overload
    def __call__(self, function: Callable[..., Coroutine[Any, Any, R]]) -> Run[P, R]: ...
    @overload
    def __call__(self, function: Callable[..., R]) -> Run[P, R]: ...


def as_run(config: Callable[P, Config]) -> _Decorator[P]:
    """Makes a run of a function that takes a configuration, then keyword parameters of its own.

    The run takes the configuration, or its fields: the required ones also by position. Where a
    field is a file, it takes the records as well: trajectories, verdicts or labels. Its attribute
    `run_async` is the same for programs with an event loop; `prill.x_async` is that of `prill.x`.

    Args:
        config: The configuration class.

    Returns:
        A decorator for a function, which may be async.
    """
    of = cast("type[Config]", config)

    def decorate(function: Callable[..., Any]) -> Run[P, Any]:
        own = inspect.signature(function).parameters.values()
        hooks = {one.name: one for one in own if one.kind is one.KEYWORD_ONLY}
        is_async = inspect.iscoroutinefunction(function)

        @wraps(function)
        def synchronously(*values: Any, **fields: Any) -> Any:
            with _configured(of, hooks, values, fields) as (made, given):
                if is_async:
                    return wait_for(lambda: function(made, **given))
                return function(made, **given)

        async def run_async(*values: Any, **fields: Any) -> Any:
            import asyncio

            with _configured(of, hooks, values, fields) as (made, given):
                if is_async:
                    return await function(made, **given)
                return await asyncio.to_thread(function, made, **given)

        run_async.__doc__ = f"Runs `{function.__name__}` with the same parameters, in a loop."
        run_async.__name__ = run_async.__qualname__ = f"{function.__name__}_async"
        made: Any = synchronously
        made.run_async = run_async
        made.__signature__ = _signature(of, hooks.values())
        return cast("Run[P, Any]", made)

    return cast("_Decorator[P]", decorate)


def _positional(config: type[Config]) -> list[str]:
    """Returns the fields that may be given by position: the required ones, or the first."""
    options = list_options(config)
    return [name for name, option in options.items() if option.required] or list(options)[:1]


def _signature(config: type[Config], hooks: Iterable[inspect.Parameter]) -> inspect.Signature:
    by_position = _positional(config)
    options = sorted(list_options(config).values(), key=lambda one: one.name not in by_position)
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            *(
                inspect.Parameter(
                    one.name,
                    kinds[one.name not in by_position],
                    default=inspect.Parameter.empty if one.required else one.default,
                )
                for one in options
            ),
            *hooks,
        ]
    )


@contextlib.contextmanager
def _configured(
    config: type[Config], hooks: Container[str], values: Sequence[Any], fields: Mapping[str, Any]
) -> Iterator[tuple[Config, dict[str, Any]]]:
    """Yields the configuration, and the function's own parameters; records in memory are held."""
    from prill.config.values import Config

    given = {name: value for name, value in fields.items() if name in hooks}
    table = {name: value for name, value in fields.items() if name not in hooks}
    if values and isinstance(values[0], Config):
        if rest := [*map(repr, values[1:]), *table]:
            raise UsageError(
                f"{rest[0]}: a {type(values[0]).__name__} is given, and no more of its fields may "
                "be; change it with copy_with"
            )
        yield values[0], given
        return
    names = _positional(config)
    if len(values) > len(names):
        raise UsageError(
            f"{len(values)} values by position; expected at most {len(names)}: {', '.join(names)}"
        )
    for name, value in zip(names, values, strict=False):
        if name in table:
            raise UsageError(f"{name}: given twice, by position and by name", parameters=(name,))
        table[name] = value
    with contextlib.ExitStack() as stack:
        yield config.read({k: as_files(k, v, stack) for k, v in table.items()}), given


def as_files(name: str, value: Any, stack: contextlib.ExitStack) -> Any:
    """Returns the value with records in memory replaced by names under which they are read.

    Those in the options of a part and in tables are replaced, too.
    """
    from prill.config.values import PartConfig

    if isinstance(value, PartConfig):
        return type(value)(value.name, **as_files(name, value.options, stack))
    if isinstance(value, Mapping):
        return {key: as_files(str(key), one, stack) for key, one in value.items()}
    if isinstance(value, VerdictFile):
        return value.output
    if isinstance(value, Iterator):
        value = list(value)
    if not isinstance(value, list | tuple) or not value:
        return value
    if isinstance(value[0], RECORDS):
        return stack.enter_context(held(name, value))
    if any(isinstance(one, VerdictFile | list | Iterator) for one in value):
        return [as_files(name, one, stack) for one in value]
    return value


class Quoted(str):
    """A note with the words of files, shown as it stands: backticks in it name no fields."""


def first_of(problems: Sequence[str], most: int = 10, end: str = "") -> Iterator[str]:
    """Yields the first problems, and the number of further ones."""
    yield from map(Quoted, problems[:most])
    if len(problems) > most:
        yield f"… and {len(problems) - most} more{end}"


class Printed:
    """A result that shows itself: as text, as JSON, and in a notebook, below its chart if it has
    one.

    Its command prints the text on stdout, or the JSON; `of_files`: the text only tells what was
    written, and goes to stderr. The notes go there, too.
    """

    of_files: ClassVar[bool] = False

    def to_dict(self) -> Any:
        """Returns the result as JSON: an object or a list."""
        return result_dict(self)

    def notes(self) -> Iterator[str]:
        """Yields what else its reader should know: warnings, files, and what to do next."""
        return iter(())

    @property
    def exit_code(self) -> int:
        """Returns the exit code of its command: 0, unless something is left out or not met."""
        return EXIT_ALL

    # What draws its chart, as `module:function`: drawings are made above the rooms of results.
    chart: ClassVar[str] = ""

    def svg(self) -> str:
        """Returns its chart as SVG text; empty without one."""
        return self.made_by(self.chart) if self.chart else ""

    def made_by(self, maker: str) -> str:
        """Returns what `module:function` makes of the result."""
        module, _, name = maker.partition(":")
        return str(getattr(import_module(module), name)(self))

    def _repr_html_(self) -> str:
        # names in it may come from others' files
        text = "\n".join(map(printable, str(self).splitlines()))
        return f"<div>{self.svg()}<pre>{escape(text)}</pre></div>"
