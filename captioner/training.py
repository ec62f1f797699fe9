"""Training rows for a captioner: descriptions by a strong model, filtered and optionally reviewed.

arXiv 2404.06474 had 1,263 pairs: descriptions by a strong model, pages in other languages than
English left out by language detection on their OCR text, wrong ones mended or removed by hand. Here
besides: near-duplicates are left out before anything is asked, and so is what was cut, declined or
is too short.

`training_data` leaves in the folder: `captions.jsonl` (all that was asked), `rows.jsonl` with
`images/` (TRL's vision format: `images`, `prompt`, `completion`), `dropped.jsonl` (each picture
that gave no row, and why) and `report.json` (their counts).
"""

from __future__ import annotations

import asyncio
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

import msgspec
from msgspec import Meta

from prill.captioner.bulk import (
    CaptionOptions,
    CaptionTally,
    ScreenshotFile,
    caption_pictures,
    screenshots_in,
)
from prill.captioner.cache import image_id
from prill.captioner.files import Caption, read_captions, read_decisions
from prill.captioner.vision import VLMCaptioner, request_words
from prill.config.values import Config
from prill.errors import InputError, UsageError
from prill.io.checksums import Checksums
from prill.io.images import open_checked
from prill.io.outputs import check_output, expect_place, make_folder, write_output, writing
from prill.io.store import copy_image, encode
from prill.models.prompts import NONCE, load_prompt
from prill.protocols import Captioner

if TYPE_CHECKING:
    from numpy import uint64
    from numpy.typing import NDArray

CAPTIONS, DECISIONS, ROWS, DROPPED, REPORT = (
    "captions.jsonl",
    "decisions.jsonl",
    "rows.jsonl",
    "dropped.jsonl",
    "report.json",
)


@dataclass(frozen=True, kw_only=True)
class TrainingSpec(Config):
    """Settings of a captioner's training rows."""

    language: Annotated[
        Literal["english", "any"], Meta(description="pages in other languages are left out")
    ] = "english"
    # Bits of 256 that differ. Of 117,000 pairs among 484 recorded screenshots of web tasks, pairs
    # looked at by eye were up to 12 the same page with other words in a field or another colour,
    # and different pages began at 14.
    near: Annotated[
        int,
        Meta(
            ge=-1,
            le=256,
            description="pictures that differ in so many of 256 bits are near-duplicates; -1: "
            "keep all",
        ),
    ] = 10
    min_chars: Annotated[int, Meta(ge=1, description="shorter captions are left out")] = 80
    request: Annotated[
        Literal["paper", "prill"],
        Meta(description="what the trained captioner will be asked: the request of that preset"),
    ] = "paper"


@dataclass(slots=True)
class TrainingTally:
    """What became of the pictures: `rows` in all, `mended` of them by a person, `dropped` by
    reason; `asked` is the run.
    """

    asked: CaptionTally
    rows: int = 0
    mended: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


def _check_folder(root: Path) -> None:
    """Raises UsageError where it is a file, or holds rows of something else."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root}: is a file; training data are a folder", parameters=("output",))
    # those are made of the others, again in the end
    Checksums(root).check(but=[ROWS, DROPPED, REPORT])
    if (root / ROWS).exists() and not (root / CAPTIONS).exists():
        raise UsageError(
            f"{root}: holds {ROWS} of something else; choose another folder", parameters=("output",)
        )


async def training_data(
    paths: Sequence[str | os.PathLike[str]],
    captioner: Captioner,
    folder: str | os.PathLike[str],
    spec: TrainingSpec | None = None,
    *,
    last: int | None = None,
    limit: int | None = None,
    **asking: Unpack[CaptionOptions],
) -> TrainingTally:
    """Asks for captions of the screenshots of trajectory files, and writes training rows. The same
    call resumes.

    What people decided since the last call (`decisions.jsonl`) is applied. A stopped run writes no
    rows.

    Args:
        paths: Trajectory files, or folders of them.
        captioner: The captioner to learn from.
        folder: The folder for captions, rows and images.
        spec: What becomes a row. None: the defaults.
        last: The most states of each trajectory, counted from its end. None: all.
        limit: The most trajectories to read, from the first on. None: all.
        **asking: As in `caption_files`.

    Returns:
        The tally: rows, rows corrected by a person, and what was dropped, by reason.

    Raises:
        UsageError: As in `caption_files`; or the folder is a file, or holds rows of something else.
    """
    spec, root = spec or TrainingSpec(), Path(folder)
    expect_place(folder, "training data, a folder,")
    _check_folder(root)
    with screenshots_in(paths, last=last, limit=limit) as (pictures, tally):
        check_output(root / CAPTIONS, "captions", paths, continued=asking.get("resume", True))
        make_folder(root / CAPTIONS)
        sieve, stop, progress = _Sieve(spec), asking.get("stop"), asking.get("progress")
        kept: list[ScreenshotFile] = []
        for picture in pictures():
            if stop is not None and stop.is_set():
                break
            if await asyncio.to_thread(sieve.passes, picture):
                kept.append(picture)
            else:
                tally.passed += 1
                tally.seen += 1
                if progress is not None:
                    progress(tally)
        await caption_pictures(iter(kept), captioner, root / CAPTIONS, tally, **asking)
    result = TrainingTally(tally)
    if not tally.stopped:
        await _write_rows(root, [picture.path for picture in kept], captioner, sieve, result)
    return result


async def _write_rows(
    root: Path, paths: Sequence[str], captioner: Captioner, sieve: _Sieve, tally: TrainingTally
) -> None:
    captions = {caption.id: caption for caption in read_captions(root / CAPTIONS)} if paths else {}
    images: dict[str, None] = {}
    decisions = read_decisions(root / DECISIONS)
    dropped = list(sieve.dropped)
    with writing(root / ROWS) as rows:
        for path in paths:
            try:
                id = await asyncio.to_thread(image_id, path)
            except InputError as error:
                dropped.append(Dropped(path, "broken", str(error)))
                continue
            caption, decision = captions.get(id), decisions.get(id)
            text = sieve.get_text(caption, decision)
            if isinstance(text, str):
                ocr = await captioner.read(path) if isinstance(captioner, VLMCaptioner) else ""
                place = await asyncio.to_thread(copy_image, path, root / "images")
                images[place.relative_to(root).as_posix()] = None
                rows.write(
                    encode(
                        _row(place.relative_to(root).as_posix(), id, sieve.spec.request, ocr, text)
                    )
                )
                tally.rows += 1
                tally.mended += decision is not None and decision.choice == "mended"
            else:
                dropped.append(Dropped(path, *text))
    tally.dropped = Counter(entry.reason for entry in dropped)
    write_output(root / DROPPED, b"".join(map(encode, dropped)))
    report = {
        "rows": tally.rows,
        "mended": tally.mended,
        "dropped": dict(tally.dropped),
        "captioner": captioner.name,
        "spec": asdict(sieve.spec),
    }
    write_output(root / REPORT, msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    checksums = Checksums(root)
    checksums.note(
        *(name for name in (CAPTIONS, ROWS, DROPPED, REPORT, *images) if name not in checksums)
    )


def _row(
    image: str, id: str, request: Literal["paper", "prill"], ocr: str, text: str
) -> dict[str, Any]:
    """TRL's conversational prompt and completion, with a picture; its path is relative to the file
    of rows.

    The code of the quotation is drawn from the picture, so that the same data give the same rows.
    """
    words = request_words(
        load_prompt("prill.captioner", "paper" if request == "paper" else "describe"), ocr
    )
    words = words.replace(NONCE, id.removeprefix("sha256:")[:8])
    return {
        "images": [image],
        "prompt": [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": words}]}
        ],
        "completion": [{"role": "assistant", "content": [{"type": "text", "text": text}]}],
    }


@dataclass(frozen=True, slots=True)
class Dropped:
    """A picture that gives no row. `reason` is one word for counting, `detail` says more."""

    image: str
    reason: str
    detail: str = ""


_REFUSAL = re.compile(
    r"\W*(?:I(?:['’]m| am) (?:sorry|unable|not able)|I (?:cannot|can['’]t|could not|won['’]t)|sorry\b|as an AI\b)",  # noqa: E501
    re.IGNORECASE,
)


class _Sieve:
    """Which pictures are asked about, and which captions become rows."""

    def __init__(self, spec: TrainingSpec) -> None:
        self.spec = spec
        self.dropped: list[Dropped] = []
        self._looks = _Looks()
        self._ids: set[str] = set()

    def passes(self, picture: ScreenshotFile) -> bool:
        """Tells whether a picture is worth captioning, and notes the reason where it is not."""
        try:
            id, bits = image_id(picture.path), image_hashes(picture.path)
        except InputError as error:
            return self._drop(picture.path, "broken", str(error))
        if id in self._ids:
            return self._drop(picture.path, "equal", "the same file under another name")
        if self.spec.language == "english" and is_english(picture.text) is False:
            return self._drop(picture.path, "language", "by the text of the page")
        if (other := self._looks.like(bits, self.spec.near)) is not None:
            return self._drop(picture.path, "near-duplicate", f"of {other}")
        self._ids.add(id)
        self._looks.add(bits, picture.path)
        return True

    def get_text(self, caption: Caption | None, decision: Caption | None) -> str | tuple[str, str]:
        """The caption for a row; where there is none, why. What a person has accepted or mended is
        not sieved again.
        """
        if decision is not None:
            if decision.choice == "rejected" or not decision.caption:
                return "rejected", f"by {decision.captioner}"
            return (
                decision.caption if decision.choice == "mended" else without_fence(decision.caption)
            )
        if caption is None or caption.caption is None:
            return "without a caption", f"{caption.unscored}: {caption.reason}" if caption else ""
        text = without_fence(caption.caption)
        if caption.truncated:
            return "truncated", f"after {len(text)} characters"
        if _REFUSAL.match(text):
            return "refusal", text[:120]
        if len(text) < self.spec.min_chars:
            return "short", text
        if self.spec.language == "english" and is_english(text) is False:
            return "language", "by the caption"
        return text

    def _drop(self, path: str, reason: str, detail: str) -> Literal[False]:
        self.dropped.append(Dropped(path, reason, detail))
        return False


class _Looks:
    """What the pictures look like that are asked about."""

    def __init__(self) -> None:
        import numpy

        self._bits = numpy.zeros((1024, 4), numpy.uint64)
        self._paths: list[str] = []

    def like(self, bits: NDArray[uint64], near: int) -> str | None:
        """The path of the picture that looks most like this one, if no more than `near` bits
        differ.
        """
        import numpy

        if not self._paths:
            return None
        distances = numpy.bitwise_count(self._bits[: len(self._paths)] ^ bits).sum(axis=1)
        nearest = int(distances.argmin())
        return self._paths[nearest] if distances[nearest] <= near else None

    def add(self, bits: NDArray[uint64], path: str) -> None:
        """Takes a picture in."""
        import numpy

        if len(self._paths) == len(self._bits):
            self._bits = numpy.concatenate([self._bits, numpy.zeros_like(self._bits)])
        self._bits[len(self._paths)] = bits
        self._paths.append(path)


def without_fence(text: str) -> str:
    """The caption without a code block around it, which models like to put there."""
    match = re.fullmatch(r"```[a-z]*\n(.*?)\n?```", text.strip(), re.DOTALL | re.IGNORECASE)
    return match[1].strip() if match else text.strip()


def image_hashes(path: str) -> NDArray[uint64]:
    """What a picture looks like, in 256 bits: whether each of 16 x 16 places is darker than the one
    to its right.

    The difference hash of N. Krawetz ("Kind of like that", 2013) with four times as many bits,
    since pages of one site differ in little. Raises InputError.
    """
    import numpy

    grey = open_checked(path).convert("L").resize((17, 16))
    places = numpy.asarray(grey, dtype=numpy.int16)
    return numpy.packbits(places[:, 1:] > places[:, :-1]).view(numpy.uint64)


# Frequent words that tell languages apart; those that several of them share are left out.
_WORDS = {
    "english": "the and of with you your from this that are is for by not or at to it be",
    "other": (
        # German
        "der das und nicht mit für auf ist ein eine von zu den im sie wir auch oder werden "
        "le les et une est pour dans sur avec vous votre aux ce pas qui "  # French
        "el los las del una con por su más como este para "  # Spanish
        "il di che della non sono nel gli più "  # Italian
        "da dos uma não mais em seu "  # Portuguese
        # Dutch, Swedish, Danish
        "het een voor op niet zijn naar och att som är inte av til og ikke "
        "nie się jest na je že bir ve için ile "  # Polish, Czech, Turkish
    ),
}
_ENGLISH, _OTHER = (frozenset(_WORDS[name].split()) for name in ("english", "other"))
_LEAST_LETTERS = 40
_NAMES = re.compile(
    r"""^\s*(?:\[[^\]\n]*\]\s*)?\w+ (?:'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)")""", re.MULTILINE
)


def is_english(text: str) -> bool | None:
    """Tells whether a text is English; None where it is too short to tell.

    A rule, not a model. It is not English when more than a fifth of its letters are of another
    script than the Latin one, or when frequent words of other languages outnumber those of English,
    or, where it has none of English, when more than 4 % of its letters have an accent. Of UI trees,
    whose roles are English in any language, only the names count.
    """
    names = ["".join(match) for match in _NAMES.findall(text)]
    text = unicodedata.normalize(
        "NFC", "\n".join(names) if len(names) > text.count("\n") / 2 else text
    )
    letters = [character for character in text if character.isalpha()]
    if len(letters) < _LEAST_LETTERS:
        # Few letters of a script that writes words with few of them tell enough.
        return None if not letters or _share(letters, _is_latin) > 0.5 else False
    if _share(letters, _is_latin) < 0.8:
        return False
    words = Counter(re.findall(r"[^\W\d_]+", text.lower()))
    english, other = (sum(words[word] for word in known) for known in (_ENGLISH, _OTHER))
    if other > max(english, 1):  # one such word may be a name
        return False
    return english > 0 or _share(letters, str.isascii) > 0.96


def _share(letters: Sequence[str], test: Callable[[str], bool]) -> float:
    return sum(map(test, letters)) / len(letters)


def _is_latin(letter: str) -> bool:
    return letter.isascii() or unicodedata.name(letter, "").startswith("LATIN")
