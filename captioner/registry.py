"""The registry of captioners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from prill.config.registry import Option, OptionError, Registry, RegistryEntry
from prill.config.shared import ThreadsOption
from prill.config.values import PartConfig
from prill.errors import UsageError
from prill.io.store import BadLine, iter_trajectories
from prill.models.registry import part_model, take_model_options
from prill.protocols import Captioner, LanguageModel
from prill.types import StrPath

CAPTIONERS = Registry(
    "captioner",
    {
        "given": RegistryEntry(
            "captions recorded with the states", "prill.captioner.recorded:GivenCaption"
        ),
        "text": RegistryEntry(
            "the recorded page text or UI tree", "prill.captioner.recorded:TextState"
        ),
        "ocr": RegistryEntry("text of the screenshot, by rapidocr", "prill.captioner.registry:ocr"),
        "easyocr": RegistryEntry(
            "text of the screenshot, by easyocr", "prill.captioner.registry:easyocr"
        ),
        "vlm": RegistryEntry(
            "a vision-language model describes the screenshot",
            "prill.captioner.vision:VLMCaptioner",
        ),
        "file": RegistryEntry(
            "captions of `prill caption`, looked up by image; FILE.jsonl for short",
            "prill.captioner.files:FileCaptioner",
        ),
    },
    "prill.captioners",
    ("name", "__call__(observation)"),
)
# A name with one of these endings is that of a caption file.
CAPTION_FILES = (".jsonl", ".jsonl.gz")


class CaptionerConfig(PartConfig):
    """Configuration of a captioner: its name, its options and those of its model.

    Example: `CaptionerConfig("vlm", model="gpt-4o-mini")`.
    """

    __slots__ = ()
    kind = "captioner"
    kinds = "captioners"
    registry = CAPTIONERS

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of the captioner that a table names."""
        return super().options_for({**table, "name": _registered(str(table.get("name")))})


def _registered(name: str) -> str:
    return "file" if name.endswith(CAPTION_FILES) else name


CaptionerLike = CaptionerConfig | str | Mapping[str, Any] | Captioner


def make_captioner(
    captioner: CaptionerLike, *, place: str = "captioner", lax: bool = False, **options: Any
) -> Captioner:
    """Makes a captioner by name, with its options.

    If the captioner calls a model, the model's options may be given next to the captioner's own.

    Args:
        captioner: A name, `module:Object` or `file.py:Object` of your own, a caption file
            (`FILE.jsonl`), a table with `name` and options, a configuration, or a captioner, which
            is returned unchanged.
        place: The location of the description in the configuration, for messages.
        lax: Parse numbers and booleans from text, for the command line.
        **options: The captioner's options. The options of a table take precedence.

    Returns:
        The captioner. It has a `name` and is called with an observation.

    Raises:
        OptionError: An option is unknown, missing or of the wrong type.
        UsageError: No captioner has that name, or the object is not a captioner.
    """
    captioner, options = CaptionerConfig.described(captioner, options, place)
    if not isinstance(captioner, str):
        if not (callable(captioner) and hasattr(captioner, "name")):
            raise OptionError(
                f"{place}: expected a captioner or its name, got {captioner!r}", "captioner"
            )
        return captioner
    if captioner.endswith(CAPTION_FILES):
        captioner, options = "file", {"path": captioner, **options}
    try:
        maker = CAPTIONERS.maker(captioner)
    except UsageError as error:
        if place == "captioner":  # the command's own option
            raise
        raise UsageError(f"{place}: {error}") from None
    settings = take_model_options(maker, options.get("model"), options)
    parts = {LanguageModel: lambda model, at: part_model(model, at, f"{place}.", lax, settings)}
    made: Captioner = CAPTIONERS.make(
        captioner, options, place=f"{place}.", prefix=f"{place}: ", parts=parts, lax=lax
    )
    return made


def captioner_for(paths: Iterable[StrPath]) -> str:
    """Chooses the captioner that fits the first trajectory of some files.

    Args:
        paths: Trajectory files, read in order as far as the first trajectory with an observation.

    Returns:
        `"given"` where its last state has a caption, else `"text"` where it has text, else `"ocr"`;
        `"given"` where no file has an observation.

    Raises:
        UsageError: A file cannot be read.
    """
    for path in paths:
        for item in iter_trajectories(path, on_error="yield"):
            if isinstance(item, BadLine) or not item.observations:
                continue
            last = item.observations[-1]
            return "given" if last.caption else "text" if last.text else "ocr"
    return "given"


def ocr(threads: ThreadsOption = None) -> Captioner:
    """Reads text with rapidocr on the CPU and caches it on disk."""
    return _read_by("rapidocr", threads)


def easyocr(threads: ThreadsOption = None) -> Captioner:
    """Reads text with easyocr, the engine of arXiv 2404.06474, and caches it on disk."""
    return _read_by("easyocr", threads)


def _read_by(engine: Literal["rapidocr", "easyocr"], threads: int | None) -> Captioner:
    from prill.captioner.cache import CachedCaptioner
    from prill.captioner.ocr import OCRCaptioner

    return CachedCaptioner(OCRCaptioner(engine, threads))
