"""The exceptions that prill raises.

PrillError
├── UsageError               the call is wrong: unknown judge, missing prompt value, budget without
a price │   └── MissingExtraError    an optional package is not installed
├── EndpointError            no call can succeed: unreachable server, refused key, unknown model, no
vision │   └── EndpointGoneError    an endpoint that has answered nothing for minutes
├── AnswerPendingError       a batch has not brought the answer to a call yet
├── EnvironmentFailedError   a browser, phone or simulator broke
└── UnscoredError            one trajectory cannot be judged; `.code` is the reason that its verdict
carries
    ├── InputError           input: the trajectory or a file it names is broken
    ├── NoEvidenceError      no_evidence: what the judge needs was not recorded
    ├── TransportError       transport: errors or silence after every retry
    ├── CallTimeoutError     timeout
    ├── RefusalError         refusal
    ├── TruncatedError       truncated
    ├── UnparsableError      parse
    ├── ContextTooLongError  context
    └── BudgetSpentError     budget

An UnscoredError becomes a verdict in one place (`prill.evaluators.judgement.make_verdict`).
UsageError and EndpointError are about the run, not about a trajectory: they end it, and what was
already judged stays on disk.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from prill.types import UnscoredReason


def install_command(extra: str) -> str:
    """Names the command that adds an extra to this installation of prill.

    An installation that did not come from a package index is named by where it came from: on an
    index, the name may be someone else's.

    Args:
        extra: The extra, such as `ocr`; several with commas between.

    Returns:
        A `pip install` for a shell.
    """
    # Only an error needs these: importing prill stays cheap.
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").is_file():
        return f"pip install -e {shlex.quote(f'{checkout}[{extra}]')}"
    try:
        origin = json.loads(distribution("prill").read_text("direct_url.json") or "{}")  # PEP 610
    except PackageNotFoundError:
        origin = {}
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return f"pip install 'prill[{extra}] @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}'"
    return f"pip install 'prill[{extra}]{' @ ' + origin['url'] if origin else ''}'"


class PrillError(Exception):
    """Base of all errors raised on purpose; the message is written for the user."""

    def __reduce__(self) -> tuple[Any, ...]:
        # For another process: with the same words. The class may want something else than these to
        # be made.
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[PrillError], words: tuple[Any, ...], state: dict[str, Any]) -> PrillError:
    error = kind.__new__(kind, *words)
    error.__dict__.update(state)
    return error


class UsageError(PrillError):
    """The call cannot be carried out as asked.

    Args:
        message: What is wrong, and what to do.
        parameters: The parameters of the call that would help.
    """

    def __init__(self, message: str, *, parameters: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.parameters = parameters


class MissingExtraError(UsageError, ImportError):
    """An optional package is missing; the message names the `pip install` to run, of the package
    itself without an extra.
    """

    def __init__(self, package: str, extra: str | None = None) -> None:
        command = f"pip install {package}" if extra is None else install_command(extra)
        super().__init__(f"{package} is not installed; run: {command}")


class EndpointError(PrillError):
    """The model endpoint cannot serve this run at all, so trying further trajectories is
    pointless.
    """


class EndpointGoneError(EndpointError):
    """The endpoint has answered nothing for a while, though many calls tried. The run may be taken
    up when it is back.
    """


class AnswerPendingError(PrillError):
    """The answer to a call is still to come, in a batch: there is no verdict yet, and no failure
    (see `prill.batches`).
    """


class EnvironmentFailedError(PrillError):
    """An environment broke; the episode ends with this on its record."""


class UnscoredError(PrillError):
    """This trajectory cannot be judged. Never a failure of the agent."""

    code: UnscoredReason = "parse"


class InputError(UnscoredError):
    """A trajectory, or a file that it names, is broken. The message says where and what to do."""

    code = "input"


class NoEvidenceError(UnscoredError):
    """The trajectory does not hold what this evaluator looks at."""

    code = "no_evidence"


class TransportError(UnscoredError):
    """The endpoint gave errors, or dropped the connection, on every attempt."""

    code = "transport"


class CallTimeoutError(UnscoredError):
    """The endpoint did not answer in time on any attempt."""

    code = "timeout"


class RefusalError(UnscoredError):
    """The model, or its content filter, declined."""

    code = "refusal"


class TruncatedError(UnscoredError):
    """The reply hit its token limit, also with twice the limit. `text` is as much of it as there
    is.
    """

    code = "truncated"

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(message)
        self.text = text


class UnparsableError(UnscoredError):
    """The reply holds no answer among those offered."""

    code = "parse"


class ContextTooLongError(UnscoredError):
    """The request does not fit the model's window. `tokens`: how many it has without the reply,
    where the endpoint said so.
    """

    code = "context"

    def __init__(self, message: str, *, tokens: int | None = None) -> None:
        super().__init__(message)
        self.tokens = tokens


class BudgetSpentError(UnscoredError):
    """The money limit is reached; the call was not made."""

    code = "budget"
