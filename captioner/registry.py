"""The registry of captioners."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from prill.config.registry import (
    Maker,
    Option,
    OptionError,
    Registry,
    RegistryEntry,
    list_options,
    read_options,
)
from prill.config.values import PartConfig, get_name
from prill.errors import UsageError
from prill.io.store import BadLine, read_trajectories
from prill.models.registry import ModelConfig, make_model, model_options
from prill.protocols import Captioner, LanguageModel

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
)
# A name with one of these endings is that of a caption file.
CAPTION_FILES = (".jsonl", ".jsonl.gz")
_Threads = Annotated[
    int | None, Meta(ge=1, description="Maximum number of CPU cores per reading (default: all).")
]


class CaptionerConfig(PartConfig):
    """Configuration of a captioner: its name, its options and those of its model.

    Example: `CaptionerConfig("vlm", model="gpt-4o-mini")`.
    """

    __slots__ = ()
    kind = "captioner"
    kinds = "captioners"

    @classmethod
    def options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of the captioner that a table names."""
        name = str(table.get("name"))
        return list_options(CAPTIONERS.maker("file" if name.endswith(CAPTION_FILES) else name))

    @classmethod
    def model_options_for(cls, table: Mapping[str, Any]) -> Mapping[str, Option]:
        """Returns the options of its model, which may be given next to the captioner's own."""
        return (
            ModelConfig.options_for({"name": get_name(table.get("model"))})
            if "model" in cls.options_for(table)
            else {}
        )

    @classmethod
    def names_with(cls, option: str) -> list[str]:
        """Returns the captioners that accept an option, themselves or through their model."""
        tables = ({"name": name, "model": "NAME"} for name in CAPTIONERS.entries)
        return [
            table["name"]
            for table in tables
            if option in {*cls.options_for(table), *cls.model_options_for(table)}
        ]


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
    if isinstance(captioner, CaptionerConfig):
        captioner = captioner.mapping()
    if isinstance(captioner, Mapping):
        table = dict(captioner)
        if odd := next((key for key in table if key in ("captioner", "place", "lax")), None):
            raise OptionError(
                f"{place}: unknown option {odd!r}; the option for the captioner's name is `name`",
                odd,
            )
        name = table.pop("name", None)
        if not isinstance(name, str) or not name:
            raise OptionError(
                f"{place}.name: expected the name of a captioner, got {name!r}", "captioner"
            )
        return make_captioner(name, place=place, lax=lax, **{**options, **table})
    if not isinstance(captioner, str):
        if options:
            raise UsageError(f"{place}: a captioner object takes no options ({', '.join(options)})")
        if not (callable(captioner) and hasattr(captioner, "name")):
            raise OptionError(
                f"{place}: expected a captioner or its name, got {captioner!r}", "captioner"
            )
        return captioner
    if captioner.endswith(CAPTION_FILES):
        captioner, options = "file", {"path": captioner, **options}
    maker = _maker(captioner, place)
    own = list_options(maker)
    of_model = [
        name for name in model_options(options.get("model")) if name in options and name not in own
    ]
    settings = {name: options.pop(name) for name in of_model} if "model" in own else {}
    parts = {LanguageModel: lambda model, at: _model(model, at, place, lax, settings)}
    made: Captioner = maker(
        **read_options(
            maker, options, f"captioner {captioner!r}", place=f"{place}.", parts=parts, lax=lax
        )
    )
    if not (callable(made) and hasattr(made, "name")):
        raise UsageError(
            f"{place}: {captioner} returned a {type(made).__name__}; a captioner has a name "
            "and __call__"
        )
    return made


def _maker(captioner: str, place: str) -> Maker:
    try:
        return CAPTIONERS.maker(captioner)
    except UsageError as error:
        if place == "captioner":  # the command's own option
            raise
        raise UsageError(f"{place}: {error}") from None


def _model(
    model: Any, at: str, place: str, lax: bool, settings: Mapping[str, Any]
) -> LanguageModel:
    """Returns the captioner's model; its options may be given next to the captioner's own."""
    try:
        return make_model(model, place=at, lax=lax, **settings)
    except OptionError as error:
        if str(error).startswith(place):
            raise
        raise OptionError(f"{place}.{error}", error.option) from None


def captioner_for(paths: Iterable[str | os.PathLike[str]]) -> str:
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
        for item in read_trajectories(path, on_error="yield"):
            if isinstance(item, BadLine) or not item.observations:
                continue
            last = item.observations[-1]
            return "given" if last.caption else "text" if last.text else "ocr"
    return "given"


def ocr(threads: _Threads = None) -> Captioner:
    """Reads text with rapidocr on the CPU and caches it on disk."""
    return _read_by("rapidocr", threads)


def easyocr(threads: _Threads = None) -> Captioner:
    """Reads text with easyocr, the engine of arXiv 2404.06474, and caches it on disk."""
    return _read_by("easyocr", threads)


def _read_by(engine: Literal["rapidocr", "easyocr"], threads: int | None) -> Captioner:
    from prill.captioner.cache import CachedCaptioner
    from prill.captioner.ocr import OCRCaptioner

    return CachedCaptioner(OCRCaptioner(engine, threads))
