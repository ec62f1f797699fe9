"""Training samples: strict reading, split by task, tokens with masked prompts.

Rows have TRL's prompt-completion format: `prompt` and `completion` are messages, and `images` are
the paths of the images in them, relative to the file. The optional fields `task`, `trajectory` and
`step` name the source.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta

from prill.config.registry import OptionError
from prill.errors import InputError, UsageError
from prill.io.images import file_hash, open_checked
from prill.io.lines import UNREADABLE, decode_as, read_lines, resolve_folder
from prill.io.manifest import MANIFEST, expect_unchanged

_MAX_NAMED = 5


class _Part(msgspec.Struct):
    type: Literal["text", "image"]
    text: str = ""


class _Turn(msgspec.Struct):
    role: Literal["system", "user", "assistant"]
    content: str | list[_Part]


class _Row(msgspec.Struct):
    prompt: Annotated[list[_Turn], Meta(min_length=1)]
    completion: Annotated[list[_Turn], Meta(min_length=1, max_length=1)]
    images: list[str] | None = None
    task: str | None = None
    trajectory: str | None = None
    step: int | None = None
    verdict: str | None = None
    probability: Annotated[float, Meta(ge=0, le=1)] | None = None
    given: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One row. The content of messages is a list of parts, even if the file has plain text. Rows of
    one task share `group`. `probability` is a teacher's probability of success, in [0, 1]. The
    completion of a `given` row is a text without a verdict, as `likelihood` learns it.
    """

    line: int
    prompt: tuple[dict[str, Any], ...]
    completion: tuple[dict[str, Any], ...]
    images: tuple[str, ...]
    group: str
    origin: str
    verdict: str | None = None
    probability: float | None = None
    given: bool = False

    @property
    def answer(self) -> str:
        """The text of the completion."""
        return "".join(part["text"] for part in self.completion[0]["content"])


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text row as tokens; `labels` are the tokens of the answer, and -100 elsewhere."""

    input_ids: list[int]
    labels: list[int]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a file with the SHA-256 of its bytes."""

    path: Path
    samples: tuple[Sample, ...]
    digest: str

    @property
    def seen(self) -> tuple[str, ...]:
        """The distinct image paths, in order."""
        return tuple(dict.fromkeys(image for sample in self.samples for image in sample.images))


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The rows of a training, divided into those to learn from and those held out."""

    rows: Rows
    learnt: tuple[Sample, ...]
    held_out: tuple[Sample, ...]
    pictures_digest: str

    @property
    def digests(self) -> dict[str, str]:
        """Hashes of the training data, to recognise it on resume."""
        return {"rows": self.rows.digest, "pictures": self.pictures_digest}


def read_rows(path: str | os.PathLike[str], *, pictures: bool = False) -> Rows:
    """Reads the rows of a file. `pictures`: every row must have an image.

    Raises UsageError that names the invalid lines. No row is repaired or skipped.
    """
    folder, digest = resolve_folder(path), hashlib.sha256()
    remedy = f"delete {MANIFEST} if it was changed on purpose"
    expect_unchanged(folder / MANIFEST, remedy, only=Path(path).name)
    samples: list[Sample] = []
    problems: list[str] = []
    for line in read_lines(path):
        digest.update(line.data + b"\n")
        try:
            sample = _sample(line.number, line.data, folder)
            if pictures and not sample.images:
                raise ValueError(
                    "has no image, but a captioner learns from images; give `images` and a "
                    "placeholder for each"
                )
            samples.append(sample)
        except (*UNREADABLE, ValueError) as error:
            problems.append(f"{path}:{line.number}: {error}")
    if problems:
        raise UsageError(_several(problems, "rows are broken"))
    if not samples:
        raise UsageError(f"{path}: has no rows")
    return Rows(Path(path), tuple(samples), digest.hexdigest())


def check_pictures(
    rows: Rows, say: Callable[[int], object] = lambda done: None
) -> tuple[dict[str, tuple[int, int]], str]:
    """Reads every image completely, and returns width and height by path, and one SHA-256 over the
    hashes of all images.

    Raises UsageError that names the lines whose images cannot be read.
    """
    sizes: dict[str, tuple[int, int]] = {}
    digest, problems = hashlib.sha256(), []
    first = {image: sample.line for sample in reversed(rows.samples) for image in sample.images}
    for done, image in enumerate(rows.seen, 1):
        try:
            sizes[image] = open_checked(image).size
            digest.update(bytes.fromhex(file_hash(image)))
        except InputError as error:
            problems.append(f"{rows.path}:{first[image]}: {error}")
        say(done)
    if problems:
        raise UsageError(_several(problems, "images cannot be read"))
    return sizes, digest.hexdigest()


class _Grouped(Protocol):
    @property
    def group(self) -> str: ...


_G = TypeVar("_G", bound=_Grouped)


def split(samples: Sequence[_G], share: float) -> tuple[list[_G], list[_G]]:
    """Splits rows into training rows and held-out rows by task. The side of a task does not depend
    on other rows.

    Raises OptionError if there are too few tasks.
    """
    groups = sorted(
        {sample.group for sample in samples},
        key=lambda group: hashlib.sha256(group.encode()).digest(),
    )
    count = min(max(1, round(share * len(groups))), len(groups) - 1) if share else 0
    if share and not count:
        raise OptionError(
            f"held_out: all rows are of one task ({groups[0]}), so none can be held out; "
            "set it to 0",
            "held_out",
        )
    apart = set(groups[:count])
    return [s for s in samples if s.group not in apart], [s for s in samples if s.group in apart]


def balanced(samples: Sequence[Sample], seed: int) -> list[Sample]:
    """Repeats the rows of rarer verdicts until each verdict has equally many rows. The remainder is
    drawn at random.
    """
    of_verdict: dict[str | None, list[Sample]] = {}
    for sample in samples:
        of_verdict.setdefault(sample.verdict, []).append(sample)
    most, draw = max(map(len, of_verdict.values()), default=0), random.Random(seed)
    added = []
    for rows in of_verdict.values():
        times, rest = divmod(most - len(rows), len(rows))
        added += [*rows * times, *draw.sample(rows, rest)]
    return [*samples, *added]


def texts(sample: Sample, reader: Any, *, sees: bool) -> tuple[str, str]:
    """Renders the prompt, and the completion up to the end of its turn, by the chat template."""
    prompt, completion = turns(sample, sees=sees)
    asked = reader.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    whole = reader.apply_chat_template(prompt + completion, tokenize=False)
    if not whole.startswith(asked):
        raise UsageError(
            "the model's chat template formats a question differently once it is answered, "
            "so it cannot be trained"
        )
    return asked, whole.removeprefix(asked)


def turns(sample: Sample, *, sees: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns prompt and completion for a chat template: content as parts for vision models, as
    plain text for others.
    """
    if sees:
        return list(sample.prompt), list(sample.completion)
    prompt, completion = (
        [{**turn, "content": "".join(part["text"] for part in turn["content"])} for turn in several]
        for several in (sample.prompt, sample.completion)
    )
    return prompt, completion


def encode(sample: Sample, reader: Any, *, sees: bool) -> Encoded:
    """Tokenizes a row without images: the prompt, and the answer up to the end of its turn."""
    tokenizer = getattr(reader, "tokenizer", reader)
    asked, said = (
        tokenizer(text, add_special_tokens=False)["input_ids"]
        for text in texts(sample, reader, sees=sees)
    )
    return Encoded([*asked, *said], [-100] * len(asked) + ended(said, tokenizer))


def ended(labels: Sequence[int], tokenizer: Any) -> list[int]:
    """Removes from the labels the tokens that a chat template adds after the end of a turn, such as
    a newline.

    Raises UsageError if the template has no end-of-turn token, because the model would not learn to
    stop.
    """
    special = set(tokenizer.all_special_ids)
    last = next((i for i in reversed(range(len(labels))) if labels[i] in special), None)
    if (
        last is None
        or tokenizer.decode([label for label in labels[last + 1 :] if label != -100]).strip()
    ):
        raise UsageError(
            "the model's chat template does not end an answer with a token of its own, so "
            "the model would not learn to stop"
        )
    return [*labels[: last + 1], *[-100] * (len(labels) - last - 1)]


def first_difference(
    sample: Sample, words: Sequence[str], reader: Any, *, sees: bool
) -> tuple[int, list[int]]:
    """Returns the number of reply tokens that all verdicts share, and the next token of each."""
    tokenizer, tokens = getattr(reader, "tokenizer", reader), []
    for word in words:
        text = sample.answer.replace(sample.verdict or "", word, 1)
        parts = [{"type": "text", "text": text}]
        said = replace(sample, completion=({**sample.completion[0], "content": parts},))
        answer = texts(said, reader, sees=sees)[1]
        tokens.append(tokenizer(answer, add_special_tokens=False)["input_ids"])
    shared = next(i for i, column in enumerate(zip(*tokens, strict=False)) if len(set(column)) > 1)
    return shared, list(dict.fromkeys(word[shared] for word in tokens))


def _sample(number: int, data: bytes, folder: Path) -> Sample:
    row = decode_as(data, _Row)
    images = tuple(str(folder / image) for image in row.images or ())
    prompt, completion = (
        [_parts(turn) for turn in row.prompt],
        [_parts(turn) for turn in row.completion],
    )
    if (
        any(turn["role"] == "assistant" for turn in prompt[-1:])
        or completion[0]["role"] != "assistant"
    ):
        raise ValueError(
            "the prompt must end before the assistant's turn, and the completion must be that turn"
        )
    if not "".join(part.get("text", "") for part in completion[0]["content"]).strip():
        raise ValueError("the completion is empty: there is nothing to learn")
    places = sum(
        part["type"] == "image" for turn in (*prompt, *completion) for part in turn["content"]
    )
    if images and not places and all(isinstance(turn.content, str) for turn in row.prompt):
        # As in TRL, the images of plain-text rows come before the first text of the user.
        asked = next((turn for turn in prompt if turn["role"] == "user"), prompt[0])
        asked["content"] = [*({"type": "image"} for _ in images), *asked["content"]]
        places = len(images)
    if places != len(images):
        raise ValueError(
            f"has {len(images)} images, but {places} placeholders for them in its messages"
        )
    if any(part["type"] == "image" for part in completion[0]["content"]):
        raise ValueError("an image in the completion; models reply in text only")
    where = row.trajectory or (row.images or [""])[0] or f"line {number}"
    origin = where if row.step is None else f"{where}, step {row.step}"
    return Sample(
        number,
        tuple(prompt),
        tuple(completion),
        images,
        row.task or where,
        origin,
        row.verdict,
        row.probability,
        row.given,
    )


def _parts(turn: _Turn) -> dict[str, Any]:
    parts = [_Part("text", turn.content)] if isinstance(turn.content, str) else turn.content
    content = [
        {"type": "image"} if part.type == "image" else {"type": "text", "text": part.text}
        for part in parts
    ]
    return {"role": turn.role, "content": content}


def _several(problems: Iterable[str], what: str) -> str:
    first, *others = problems
    if not others:
        return first
    shown = "\n  ".join([first, *others][:_MAX_NAMED])
    return f"{len(others) + 1} {what}:\n  {shown}" + ("\n  …" if len(others) >= _MAX_NAMED else "")
