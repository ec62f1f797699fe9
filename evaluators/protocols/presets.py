"""Published judge protocols as data: what is shown, in which order, and which replies count.

A preset is a TOML file of `published/`: the protocol's source, its parser, its label for a failed
call, its stages and how prill's version differs. The wording of the prompts is prill's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from prill.config.registry import nearest
from prill.config.toml import parse_toml
from prill.errors import UsageError
from prill.models.calls import ROOM
from prill.models.prompts import content_hash

_FOLDER = "published"
HASH_CHARS = len("sha256:") + 12  # of a hash in a citation
# What every preset does unlike the published code.
COMMON_DIFFERENCES = (
    "The wording of the prompts is prill's; text of pages and agents is quoted between random "
    "codes.",
    "A failed call, or a reply without a clear verdict, is unscored. The published rule's label "
    "for it is told apart, as the official label.",
    "A run whose ending was not recorded in the form that is shown is unscored, without a call "
    "and without an official label.",
    "Calls are repeated, cached and shortened to the model's window by prill's client. A reply "
    "that was cut is asked for again with more tokens.",
)


@dataclass(frozen=True, kw_only=True)
class ShownFrames:
    """The frames that a call shows.

    Args:
        which: `last`: the last ones. `graded`: those with at least the grade `least`, in order.
        most: The maximum number. `last` keeps the latest, `graded` the earliest.
        least: The minimum grade.
    """

    which: Literal["last", "graded"]
    most: Annotated[int, Meta(ge=1)]
    least: int = 0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One kind of call of a protocol.

    Args:
        name: The stage's name; later prompts have its result under that placeholder.
        per: What a call is about: the `goal`, every `frame`, every frame `relevant` to a criterion,
            every `transition` between two states, the `last` frame, or the whole `run`.
        prompt: The prompt file.
        reads: The reader of the replies (`prill.evaluators.protocols.readers`).
        max_tokens: The maximum tokens of a reply, as published where it is.
        frames: The frames shown. None: that of the call's subject, or none.
        detail: The image detail sent to the endpoint. None: its default.
        optional: Whether the protocol goes on without a reply that cannot be read.
        when: Skip the stage unless this holds: `rivals`, two or more conditional criteria.
    """

    name: str
    per: Literal["goal", "frame", "relevant", "transition", "last", "run"] = "run"
    prompt: str
    reads: str
    max_tokens: Annotated[int, Meta(ge=1)] = 1024
    frames: ShownFrames | None = None
    detail: Literal["high"] | None = None
    optional: bool = False
    when: Literal["rivals"] | None = None


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A published judge protocol.

    Args:
        name: The preset's name.
        version: The preset's version; increased when verdicts change.
        title: The published name.
        paper: The paper, or the project if there is none.
        source: The public code that defines the protocol: repository, path, commit.
        model: The model that the authors judge with.
        shows: What the judge is shown besides the goal, in words.
        parser: The authors' parser and its rule for other replies, in words.
        error: The authors' label for a run whose call failed.
        no_answer: For a run in which the agent did not answer: `ask` the model all the same, or
            take the authors' label without a call.
        steps: The parts of each step, for protocols that show steps.
        chars: The maximum characters of each text.
        cut: Where a longer text is cut.
        differences: How prill's version differs, besides `COMMON_DIFFERENCES`.
        stages: The calls, in order; the last gives the verdict.
    """

    name: str
    version: str = "1"
    title: str
    paper: str
    source: tuple[str, ...]
    model: str
    shows: str
    parser: str
    error: Literal["failure", "none"]
    no_answer: Literal["ask", "failure", "none"] = "ask"
    steps: tuple[Literal["url", "thought", "action"], ...] = ()
    chars: int = ROOM
    cut: Literal["middle", "end"] = "middle"
    differences: tuple[str, ...]
    stages: Annotated[tuple[Stage, ...], Meta(min_length=1)] = field(default=())

    @property
    def shows_pictures(self) -> bool:
        """Returns whether any call shows frames."""
        return any(stage.frames or stage.per in ("frame", "last") for stage in self.stages)

    @property
    def prompt_names(self) -> tuple[str, ...]:
        """Returns the prompt files in use, each once."""
        return tuple(dict.fromkeys(("quotes", *(stage.prompt for stage in self.stages))))

    @property
    def settings(self) -> str:
        """Returns what changes verdicts besides the prompts, as a hash."""
        parts = (self.stages, self.no_answer, self.steps, str(self.chars), self.cut)
        return content_hash(*(msgspec.json.encode(part).decode() for part in parts))

    def cite(self, prompt: str | None, model: str | None, captioner: str | None = None) -> str:
        """Returns a line that says by which protocol verdicts were made: protocol and paper, the
        hash of the prompts, model, frames and parser. `captioner` is what read states in place of
        screenshots; None: as published.
        """
        read = "" if captioner is None else f", states read by {captioner}"
        return (
            f"{self.title} ({self.paper}), prill preset {self.name} {self.version}, prompts "
            f"{(prompt or '-')[:HASH_CHARS]} (worded by prill), model {model or '-'} (published "
            f"with {self.model}), shown: {self.shows}{read}; parser: {self.parser}"
        )


def list_protocols() -> tuple[str, ...]:
    """Returns the names of all presets, in alphabetical order."""
    return _names(_FOLDER, ".toml")


def list_prompts() -> tuple[str, ...]:
    """Returns the names of all prompt files, in alphabetical order."""
    return _names("prompts", ".md")


@cache
def _names(folder: str, ending: str) -> tuple[str, ...]:
    items = [item.name for item in (files(__package__) / folder).iterdir()]
    return tuple(sorted(name.removesuffix(ending) for name in items if name.endswith(ending)))


@cache
def load_protocol(name: str) -> Protocol:
    """Loads a preset by its name, one of `list_protocols`. Raises UsageError if there is no such
    preset.
    """
    if name not in list_protocols():
        raise UsageError(
            f"unknown protocol {name!r}{nearest(name, list_protocols())}; expected one of "
            f"{', '.join(list_protocols())}",
            parameters=("protocols",),
        )
    text = (files(__package__) / _FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    table: dict[str, Any] = parse_toml(text)
    return msgspec.convert({"name": name, **table}, Protocol)
