"""The page of a judge: its stages, as a TOML file with prompts beside it.

A page is data. What it names (prompts, readers, kinds of evidence, options) is there already; no
code runs from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from prill.config.registry import nearest
from prill.config.toml import parse_toml
from prill.errors import UsageError
from prill.models.calls import ROOM
from prill.models.prompts import Prompt, content_hash, load_prompt, read_prompt
from prill.types import Platform

PACKAGE = "prill.evaluators.judges"
_FOLDER = Path(__file__).with_name("judges")
_PLACE = re.compile(r"\{\{[^{}\n]{0,60}\}{0,2}")
_SLOT = re.compile(r"\{\{ *[a-z_]+ *\}\}")
# What every published page does unlike the published code.
COMMON_DIFFERENCES = (
    "The wording of the prompts is prill's; text of pages and agents is quoted between random "
    "codes, unless the page is `plain`.",
    "A failed call, or a reply without a clear verdict, is unscored. The published rule's label "
    "for it is told apart, as the official label.",
    "A run whose ending was not recorded in the form that is shown is unscored, without a call "
    "and without an official label.",
    "Calls are repeated, cached and shortened to the model's window by prill's client. A reply "
    "that was cut is asked for again with more tokens.",
    "Key points and rubrics are asked for once a goal, and shared by its attempts.",
)
Evidence = Literal["screens", "distinct", "key", "last", "texts"]


@dataclass(frozen=True, kw_only=True)
class ShownFrames:
    """The frames that a call shows.

    Args:
        which: `last`: the last ones. `graded`: those with at least the grade `least`, in order.
            `best`: for each column of grades the best ones, and always the last frame.
        most: The maximum number. `last` keeps the latest, `graded` the earliest. `best`: of each
            column, unless the option `top_k` sets it.
        least: The minimum grade.
    """

    which: Literal["last", "graded", "best"]
    most: Annotated[int, Meta(ge=1)] = 1
    least: int = 0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One kind of call of a judge.

    Args:
        name: The stage's name; later prompts have its result under that placeholder.
        per: What a call is about: the `goal` (asked once, and shared by its attempts), every
            `frame`, every frame `relevant` to a criterion, every `step`, every `transition`
            between two states, every `criterion` in every state, the `last` frame, or the `run`.
        prompt: The prompt: a name, or one for the `web` and one for all `other` platforms.
        reads: How a reply is read (`prill.evaluators.readers.READERS`).
        max_tokens: The maximum tokens of a reply, unless the option of that name sets it.
        frames: The frames shown. None: that of the call's subject, or all.
        detail: The image detail sent to the endpoint. None: its default.
        optional: Whether the judge goes on without a reply that cannot be read.
        when: Skip the stage unless this holds: `rivals`, two or more conditional criteria;
            `pictures`, no captioner describes the states.
    """

    name: str = "verdict"
    per: Literal["goal", "frame", "relevant", "step", "transition", "criterion", "last", "run"] = (
        "run"
    )
    prompt: str | dict[Literal["web", "other"], str]
    reads: str
    max_tokens: Annotated[int, Meta(ge=1)] = 1024
    frames: ShownFrames | None = None
    detail: Literal["high"] | None = None
    optional: bool = False
    when: Literal["rivals", "pictures"] | None = None

    @property
    def prompts(self) -> tuple[str, ...]:
        """The names of its prompts; the first of two is for the web."""
        if isinstance(self.prompt, str):
            return (self.prompt,)
        return self.prompt["web"], self.prompt["other"]

    def prompt_for(self, platform: Platform) -> str:
        """Returns the name of the prompt for a platform."""
        return self.prompts[0 if platform == "web" else -1]


@dataclass(frozen=True, kw_only=True)
class Page:
    """The description of a judge.

    Args:
        name: The judge's name.
        version: The judge's version; increased when verdicts change.
        title: What it is called where it was published.
        paper: The paper, or the project if there is none.
        source: The public code that defines it: repository, path, commit.
        model: The model that its authors judge with.
        shows: What the judge is shown besides the goal, in words.
        parser: The authors' parser and its rule for other replies, in words.
        differences: How prill's version differs.
        evidence: What is read of the states: `screens`, every screenshot, or text where a captioner
            is given; `distinct`, the same without repetitions; `key`, the screenshots that tell
            most, or the last `frames`; `last`, the texts of the last `frames` states; `texts`, the
            text of every state.
        captioner: Whether the judge reads texts of states.
        ending: Whether the state after the last action is read.
        options: The names of the keys that a user may set.
        settings: Keys of the judge with values other than the usual ones.
        params: Constants in the fingerprint, from versions in which they were options.
        later: Options that came later: at their usual value, they are no part of the fingerprint.
        answer_on: Where the agent's answer is shown, unless `answer` says so.
        plain: Whether texts stand in the prompt without quotation marks, as in arXiv 2404.06474.
        hide_goal: Whether passages that repeat the goal are removed from what is shown.
        error: The authors' label for a run whose call failed. None: the page has no such rule.
        no_answer: For a run in which the agent did not answer: `ask` the model all the same, or
            take the authors' label without a call.
        steps: The parts of each step, for prompts that show steps.
        chars: The maximum characters of each text, unless the option `max_chars` sets it.
        cut: Where a longer text is cut.
        stages: The calls, in order; the last gives the verdict.
        folder: The folder of the file. Empty: the page is prill's own.
        text: The file's text.
    """

    name: str
    version: str = "1"
    title: str = ""
    paper: str = ""
    source: tuple[str, ...] = ()
    model: str = ""
    shows: str = ""
    parser: str = ""
    differences: tuple[str, ...] = ()
    evidence: Evidence = "screens"
    captioner: Literal["no", "optional", "required"] = "optional"
    ending: bool = True
    options: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    later: tuple[str, ...] = ()
    answer_on: Literal["all", "web", "devices"] = "all"
    plain: bool = False
    hide_goal: bool = False
    error: Literal["failure", "none"] | None = None
    no_answer: Literal["ask", "failure", "none"] = "ask"
    steps: tuple[Literal["url", "thought", "action"], ...] = ("url", "thought", "action")
    chars: Annotated[int, Meta(ge=1)] = ROOM
    cut: Literal["middle", "end"] = "middle"
    stages: Annotated[tuple[Stage, ...], Meta(min_length=1)] = ()
    folder: str = ""
    text: str = ""

    @property
    def shows_pictures(self) -> bool:
        """Whether a call can show screenshots."""
        if self.evidence in ("key", "distinct"):
            return True
        return self.evidence == "screens" and any(
            stage.frames or stage.per in ("frame", "last") for stage in self.stages
        )

    @property
    def prompt_names(self) -> tuple[str, ...]:
        """The names of its prompts, each once, in the order of use."""
        return tuple(dict.fromkeys(name for stage in self.stages for name in stage.prompts))

    @property
    def main_prompts(self) -> tuple[str, ...]:
        """The names of the prompts for the verdict."""
        return self.stages[-1].prompts

    def load(self, name: str) -> Prompt:
        """Returns a prompt by its name: a file beside the page, else one of prill's.

        Raises UsageError if there is none.
        """
        for path in self._places(name):
            if path.is_file() and path.resolve().is_relative_to(Path(self.folder).resolve()):
                return Prompt(name, read_prompt(str(path)))
        try:
            return load_prompt(PACKAGE, name)
        except UsageError:
            shipped = sorted(path.stem for path in (_FOLDER / "prompts").glob("*.md"))
            raise UsageError(
                f"there is no prompt {name!r}{nearest(name, shipped)}; expected a file beside the "
                "page, or the name of one of prill's prompts"
            ) from None

    def _places(self, name: str) -> Iterator[Path]:
        if self.folder:
            folder = Path(self.folder)
            file = name if name.endswith(".md") else f"{name}.md"
            yield from (folder / file, folder / "prompts" / file)

    @property
    def hash(self) -> str:
        """A hash of all that changes verdicts, besides the prompts."""
        skipped = {"name", "folder", "text", "title", "paper", "source", "model", "shows"}
        skipped |= {"parser", "differences", "version"}
        kept = (getattr(self, part.name) for part in fields(self) if part.name not in skipped)
        return content_hash(*(msgspec.json.encode(part).decode() for part in kept))


def list_pages() -> tuple[str, ...]:
    """Returns the names of prill's own pages, in alphabetical order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def page_file(name: str) -> Path:
    """Returns the file of one of prill's own pages."""
    return _FOLDER / f"{name}.toml"


def is_page(name: str) -> bool:
    """Returns whether a name is a TOML file of a judge with stages of its own."""
    path = Path(name)
    if path.suffix != ".toml" or not path.is_file():
        return False
    with path.open("rb") as file:
        return (
            re.search(rb"^[ \t]*\[\[[ \t]*stages[ \t]*\]\]", file.read(1 << 20), re.M) is not None
        )


def parse_page(path: Path) -> Page:
    """Parses a page.

    Raises UsageError for a file that cannot be read, or is no page; the message names the line, and
    the key that was probably meant.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        table = parse_toml(text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    _refuse_unknown(table, Page, path, text)
    stages = table.get("stages")
    for number, stage in enumerate(stages if isinstance(stages, list) else ()):
        if isinstance(stage, Mapping):
            _refuse_unknown(stage, Stage, path, text, number)
            if isinstance(shown := stage.get("frames"), Mapping):
                _refuse_unknown(shown, ShownFrames, path, text, number)
    folder = "" if path.parent == _FOLDER else str(path.parent.absolute())
    try:
        return msgspec.convert(
            {"name": path.stem, **table, "folder": folder, "text": text}, Page, strict=True
        )
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$.")
        keys = re.findall(r"[a-z_]+|\d+", place)
        at = int(keys[1]) if keys[:1] == ["stages"] and len(keys) > 1 else None
        key = next((key for key in reversed(keys) if not key.isdigit()), "stages")
        value = table if at is None else table["stages"][at]
        value = value["frames"] if "frames" in keys[:-1] else value
        within = ShownFrames if "frames" in keys[:-1] else Stage
        choices = _choices(Page if at is None else within, key)
        near = nearest(str(value.get(key)), choices) if choices else ""
        expected = f"; expected one of {', '.join(choices)}" if choices else ""
        raise UsageError(
            f"{path}:{find_line(text, key, at)}: {key}: {words}{near}{expected}"
        ) from None


def _choices(type_: type, key: str) -> tuple[str, ...]:
    hint = msgspec.inspect.type_info(type_)
    found = next((part.type for part in getattr(hint, "fields", ()) if part.name == key), None)
    return tuple(map(str, getattr(getattr(found, "item_type", found), "values", ())))


def _refuse_unknown(
    table: Mapping[str, Any], type_: type, path: Path, text: str, stage: int | None = None
) -> None:
    names = [part.name for part in fields(type_) if part.name not in ("folder", "text")]
    for key in table:
        if key not in names:
            raise UsageError(
                f"{path}:{find_line(text, key, stage)}: unknown key {key!r}"
                f"{nearest(key, names)}; expected one of {', '.join(names)}"
            )


def find_line(text: str, key: str, stage: int | None = None) -> int:
    """Returns the line of a key, from 1: of a page, or of one of its stages (from 0)."""
    number = -1
    for line, words in enumerate(text.splitlines(), 1):
        number += re.match(r"\s*\[\[\s*stages\s*\]\]", words) is not None
        inside = number == -1 if stage is None else number == stage
        if inside and re.search(rf"(?:^|[\[{{,.])\s*['\"]?{re.escape(key)}['\"]?\s*[=.\]]", words):
            return line
    return next(
        (
            line
            for line, words in enumerate(text.splitlines(), 1)
            if stage is not None and words.lstrip().startswith("[[")
        ),
        1,
    )


def check_placeholders(prompt: Prompt, known: Sequence[str], place: str) -> None:
    """Raises UsageError for a prompt without a turn of the user, or with a placeholder that is
    malformed or not known there.
    """
    if "user" not in prompt.roles:
        raise UsageError(f"{place}: prompt {prompt.name}: the heading `# user` is missing")
    known = tuple(dict.fromkeys(known))
    for found in _PLACE.finditer(prompt.text):
        name = found[0].strip("{} ")
        line = prompt.text.count("\n", 0, found.start()) + 1
        if not _SLOT.fullmatch(found[0]) or name not in known:
            near = get_close_matches(name, known, 1)
            hint = f" (did you mean {{{{ {near[0]} }}}}?)" if near else ""
            raise UsageError(
                f"{place}: prompt {prompt.name}, line {line}: unknown placeholder "
                f"{found[0]}{hint}; expected one of {', '.join(known)}"
            )
