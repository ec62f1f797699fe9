"""The exceptions that prill raises.

    PrillError
    ├── UsageError               invalid call: unknown judge, missing prompt value, budget without
    │   │                        a price
    │   └── MissingExtraError    an optional package is not installed
    ├── EndpointError            no call can succeed: unreachable server, rejected key, unknown
    │   │                        model, no vision
    │   └── EndpointGoneError    the endpoint has not answered for minutes
    ├── AnswerPendingError       the answer to a call in a batch is pending
    ├── EnvironmentFailedError   a browser, phone or simulator failed
    └── UnscoredError            one trajectory cannot be judged; `.code` is the verdict's reason
        ├── InputError           input: the trajectory or a file that it names is invalid
        ├── NoEvidenceError      no_evidence: the trajectory lacks evidence that the judge needs
        ├── TransportError       transport: errors or no answer after every retry
        ├── CallTimeoutError     timeout
        ├── RefusalError         refusal
        ├── TruncatedError       truncated
        ├── UnparsableError      parse
        ├── ContextTooLongError  context
        └── BudgetSpentError     budget

`prill.evaluators.judgement.make_verdict` turns an UnscoredError into a verdict. UsageError and
EndpointError concern the run, not one trajectory: they end it, and existing verdicts stay on disk.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from prill.types import Findings, UnscoredReason


def install_command(extra: str) -> str:
    """Returns the command that adds an extra to this installation of prill.

    For an installation that did not come from a package index, the command contains its origin,
    because the name on an index may belong to someone else.

    Args:
        extra: The extra, such as `ocr`, or several separated by commas.

    Returns:
        A `pip install` command for a shell.
    """
    # imported here because only errors need them
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
    """Base class of all prill errors; messages are written for users."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled with its message and attributes, because a subclass's constructor may take other
        # arguments.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[PrillError], arguments: tuple[Any, ...], state: dict[str, Any]
) -> PrillError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class UsageError(PrillError):
    """Raised if a call cannot be carried out: an invalid argument or setting, or an unusable file.

    Args:
        message: What is wrong, and what to do.
        parameters: The parameters of the call that can fix it.
    """

    def __init__(self, message: str, *, parameters: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.parameters = parameters


class MissingExtraError(UsageError, ImportError):
    """Raised if an optional package is missing; the message contains the `pip install` command.

    Without an extra, the command installs the package itself.
    """

    def __init__(self, package: str, extra: str | None = None) -> None:
        command = f"pip install {package}" if extra is None else install_command(extra)
        super().__init__(f"{package} is not installed; run: {command}")


class EndpointError(PrillError):
    """Raised if the model endpoint cannot serve this run at all; further trajectories would fail
    too.
    """


class EndpointGoneError(EndpointError):
    """Raised if the endpoint has not answered for a while. The run can be resumed later."""


class AnswerPendingError(PrillError):
    """Raised if a batch has no answer yet: neither a verdict nor a failure (see
    `prill.evaluators.scoring.batches`).
    """


class EnvironmentFailedError(PrillError):
    """Raised if an environment fails; the episode ends with this error in its record."""


class UnscoredError(PrillError):
    """Raised if a trajectory cannot be judged. It does not count as a failure of the agent.

    `findings` are the judge's findings all the same, if it has any.
    """

    code: UnscoredReason = "parse"
    findings: Findings | None = None


class InputError(UnscoredError):
    """Raised if a trajectory or a file that it names is invalid; the message says where and what to
    do.
    """

    code = "input"


class NoEvidenceError(UnscoredError):
    """Raised if the trajectory lacks the evidence that the judge needs."""

    code = "no_evidence"


class TransportError(UnscoredError):
    """Raised if the endpoint returned errors or closed the connection on every attempt."""

    code = "transport"


class CallTimeoutError(UnscoredError):
    """Raised if the endpoint did not answer in time on any attempt."""

    code = "timeout"


class RefusalError(UnscoredError):
    """Raised if the model or its content filter refused to answer."""

    code = "refusal"


class TruncatedError(UnscoredError):
    """Raised if the reply hit its token limit, even with twice the limit.

    `text` is the truncated reply.
    """

    code = "truncated"

    def __init__(self, message: str, text: str = "") -> None:
        super().__init__(message)
        self.text = text


class UnparsableError(UnscoredError):
    """Raised if the reply contains none of the offered answers."""

    code = "parse"


class ContextTooLongError(UnscoredError):
    """Raised if the request does not fit the model's context window.

    `tokens` is the number of tokens without the reply, if the endpoint reported it.
    """

    code = "context"

    def __init__(self, message: str, *, tokens: int | None = None) -> None:
        super().__init__(message)
        self.tokens = tokens


class BudgetSpentError(UnscoredError):
    """Raised if the budget is spent; the call was not made."""

    code = "budget"
