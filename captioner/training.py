"""Training rows for a captioner: descriptions by a strong model, filtered and optionally reviewed.

arXiv 2404.06474 used 1,263 pairs with descriptions by a strong model. Language detection on the OCR
text removed pages that are not in English, and people corrected or removed wrong descriptions. In
addition, this module removes near-duplicates before any request, and captions that were cut,
refused or are too short.

`training_data` writes to the folder: `captions.jsonl` (all captions), `rows.jsonl` with `images/`
(TRL's vision format: `images`, `prompt`, `completion`), `dropped.jsonl` (each picture without a
row, and the reason) and `report.json` (the counts).
"""

from __future__ import annotations

import asyncio
import re
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
from prill.captioner.vision import VLMCaptioner, request_text
from prill.config.values import Config
from prill.errors import InputError, UsageError
from prill.io.images import open_checked
from prill.io.outputs import check_output, expect_file, make_folder, write_output, writing
from prill.io.store import copy_image, encode
from prill.models.prompts import NONCE, load_prompt
from prill.protocols import Captioner
from prill.types import StrPath

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

    # Number of differing bits, of 256. Among 117,000 pairs of 484 recorded screenshots of web
    # tasks, the pairs inspected by eye with up to 12 differing bits show the same page with other
    # text in a field or another colour. Different pages start at 14.
    near: Annotated[
        int,
        Meta(
            ge=-1,
            le=256,
            description="Images that differ in at most this many of 256 bits are "
            "near-duplicates; -1 keeps all.",
        ),
    ] = 10
    min_chars: Annotated[
        int,
        Meta(
            ge=1,
            description="Minimum length of a caption in characters. Shorter captions are left out.",
        ),
    ] = 80
    request: Annotated[
        Literal["paper", "prill"],
        Meta(description="Preset of the captioner vlm whose request is used in the rows."),
    ] = "paper"


@dataclass(slots=True)
class TrainingTally:
    """Counts of images: all `rows`, those `mended` by a reviewer, and those `dropped` by reason.

    `asked` is the tally of the captioning run.
    """

    asked: CaptionTally
    rows: int = 0
    mended: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


def _check_folder(root: Path) -> None:
    """Raises UsageError if the path is a file, or a folder with rows of another data set."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root}: is a file; training data needs a folder", parameters=("output",))
    if (root / ROWS).exists() and not (root / CAPTIONS).exists():
        raise UsageError(
            f"{root}: contains {ROWS} of another kind; choose another folder",
            parameters=("output",),
        )


async def training_data(
    paths: Sequence[StrPath],
    captioner: Captioner,
    folder: StrPath,
    spec: TrainingSpec | None = None,
    *,
    last: int | None = None,
    limit: int | None = None,
    keep: Callable[[str], str] | None = None,
    **options: Unpack[CaptionOptions],
) -> TrainingTally:
    """Captions the screenshots of trajectory files and writes training rows.

    The same call resumes a stopped run.

    Reviewers' decisions since the last call (`decisions.jsonl`) are applied. A stopped run writes
    no rows.

    Args:
        paths: As in `caption_files`.
        captioner: The captioner to learn from.
        folder: The folder for captions, rows and images.
        spec: Settings that select the rows. None: the defaults.
        last: As in `caption_files`.
        limit: As in `caption_files`.
        keep: As in `caption_files`.
        **options: As in `caption_files`.

    Returns:
        The tally: rows, rows corrected by a reviewer, and dropped images by reason.

    Raises:
        UsageError: As in `caption_files`; or the folder is a file, or contains rows of another data
            set.
    """
    spec, root = spec or TrainingSpec(), Path(folder)
    expect_file(folder, "training data, a folder,")
    _check_folder(root)
    with screenshots_in(paths, last=last, limit=limit, keep=keep) as (pictures, tally):
        check_output(root / CAPTIONS, "captions", paths, continued=options.get("resume", True))
        make_folder(root / CAPTIONS)
        sieve, stop, progress = _Sieve(spec), options.get("stop"), options.get("progress")
        screenshots: list[ScreenshotFile] = []
        for picture in pictures():
            if stop is not None and stop.is_set():
                break
            if await asyncio.to_thread(sieve.passes, picture):
                screenshots.append(picture)
            else:
                tally.passed += 1
                tally.seen += 1
                if progress is not None:
                    progress(tally)
        await caption_pictures(iter(screenshots), captioner, root / CAPTIONS, tally, **options)
    result = TrainingTally(tally)
    if not tally.stopped:
        await _write_rows(root, [picture.path for picture in screenshots], captioner, sieve, result)
    return result


async def _write_rows(
    root: Path, paths: Sequence[str], captioner: Captioner, sieve: _Sieve, tally: TrainingTally
) -> None:
    captions = {caption.id: caption for caption in read_captions(root / CAPTIONS)} if paths else {}
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
                copy = await asyncio.to_thread(copy_image, path, root / "images")
                rows.write(
                    encode(
                        _row(copy.relative_to(root).as_posix(), id, sieve.spec.request, ocr, text)
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


def _row(
    image: str, id: str, request: Literal["paper", "prill"], ocr: str, text: str
) -> dict[str, Any]:
    """Returns a row in TRL's conversational prompt-completion format, with an image path relative
    to the file of rows.

    The random delimiter of the quotation is seeded by the picture, so that the same data give the
    same rows.
    """
    prompt = request_text(
        load_prompt("prill.captioner", "paper" if request == "paper" else "describe"), ocr
    )
    prompt = prompt.replace(NONCE, id.removeprefix("sha256:")[:8])
    return {
        "images": [image],
        "prompt": [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]}
        ],
        "completion": [{"role": "assistant", "content": [{"type": "text", "text": text}]}],
    }


@dataclass(frozen=True, slots=True)
class Dropped:
    """A picture without a row: `reason` is a category for counting, `detail` explains it."""

    image: str
    reason: str
    detail: str = ""


_REFUSAL = re.compile(
    r"\W*(?:I(?:['’]m| am) (?:sorry|unable|not able)|I (?:cannot|can['’]t|could not|won['’]t)|sorry\b|as an AI\b)",  # noqa: E501
    re.IGNORECASE,
)


class _Sieve:
    """A filter that selects the pictures to caption and the captions that become rows."""

    def __init__(self, spec: TrainingSpec) -> None:
        self.spec = spec
        self.dropped: list[Dropped] = []
        self._looks = _Looks()
        self._ids: set[str] = set()

    def passes(self, picture: ScreenshotFile) -> bool:
        """Returns whether to caption a picture, and records the reason if not."""
        try:
            id, bits = image_id(picture.path), image_hashes(picture.path)
        except InputError as error:
            return self._drop(picture.path, "broken", str(error))
        if id in self._ids:
            return self._drop(picture.path, "equal", "the same file under another name")
        if (other := self._looks.like(bits, self.spec.near)) is not None:
            return self._drop(picture.path, "near-duplicate", f"of {other}")
        self._ids.add(id)
        self._looks.add(bits, picture.path)
        return True

    def get_text(self, caption: Caption | None, decision: Caption | None) -> str | tuple[str, str]:
        """Returns the caption for a row, or the reason and detail why there is none.

        Captions that a reviewer accepted or corrected are not filtered again.
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
        return text

    def _drop(self, path: str, reason: str, detail: str) -> Literal[False]:
        self.dropped.append(Dropped(path, reason, detail))
        return False


class _Looks:
    """Perceptual hashes of the pictures to caption."""

    def __init__(self) -> None:
        import numpy

        self._bits = numpy.zeros((1024, 4), numpy.uint64)
        self._paths: list[str] = []

    def like(self, bits: NDArray[uint64], near: int) -> str | None:
        """Returns the path of the most similar picture, if at most `near` bits differ."""
        import numpy

        if not self._paths:
            return None
        distances = numpy.bitwise_count(self._bits[: len(self._paths)] ^ bits).sum(axis=1)
        nearest = int(distances.argmin())
        return self._paths[nearest] if distances[nearest] <= near else None

    def add(self, bits: NDArray[uint64], path: str) -> None:
        """Adds a picture."""
        import numpy

        if len(self._paths) == len(self._bits):
            self._bits = numpy.concatenate([self._bits, numpy.zeros_like(self._bits)])
        self._bits[len(self._paths)] = bits
        self._paths.append(path)


def without_fence(text: str) -> str:
    """Removes the code fence that models often put around a caption."""
    match = re.fullmatch(r"```[a-z]*\n(.*?)\n?```", text.strip(), re.DOTALL | re.IGNORECASE)
    return match[1].strip() if match else text.strip()


def image_hashes(path: str) -> NDArray[uint64]:
    """Returns a 256-bit difference hash: whether each of 16 x 16 cells is darker than its right
    neighbour.

    This is the difference hash of N. Krawetz ("Kind of like that", 2013) with four times as many
    bits, because pages of one site differ only slightly. Raises InputError.
    """
    import numpy

    grey = open_checked(path).convert("L").resize((17, 16))
    pixels = numpy.asarray(grey, dtype=numpy.int16)
    return numpy.packbits(pixels[:, 1:] > pixels[:, :-1]).view(numpy.uint64)
