"""Captions screenshots into a caption file, or writes training rows for a captioner."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from prill.captioner.bulk import CaptionTally, caption_files, expect_pictures
from prill.captioner.files import read_captions
from prill.captioner.planning import plan_captions
from prill.captioner.registry import CaptionerConfig, CaptionerLike, make_captioner
from prill.captioner.training import CAPTIONS, ROWS, TrainingSpec, training_data
from prill.config.shared import LimitOption, ResumeOption, RetryUnscoredOption
from prill.config.values import get_name
from prill.datasets.inputs import RecordingsConfig, opened_folders
from prill.datasets.recordings import Recording
from prill.errors import UsageError
from prill.io.outputs import expect_file
from prill.io.store import copy_image
from prill.io.tables import data_frame
from prill.io.verdict_log import RETRIED
from prill.models.budget import run_budget
from prill.models.options import BudgetOption, ConcurrencyOption
from prill.models.registry import ModelConfig, model_options
from prill.plans import RunPlan, compute_cost
from prill.protocols import Captioner, Engine
from prill.running import EXIT_ALL, EXIT_INTERRUPTED, EXIT_SOME, Printed, as_run
from prill.work.engines import EngineOption, make_engine

_VLM, _TRAINING = CaptionerConfig("vlm"), TrainingSpec()


@dataclass(frozen=True, kw_only=True)
class CaptionConfig(RecordingsConfig):
    """Configuration of `prill caption`: caption each screenshot once, for judges or to train a
    captioner.
    """

    output: Annotated[
        str | Path,
        Meta(
            description="Caption file; an interrupted run resumes there. With for_training: "
            "folder for the training rows."
        ),
    ]
    captioner: Annotated[
        CaptionerLike,
        Meta(
            description="Captioner to use: vlm (asks a model), ocr, easyocr, given, or "
            "module:Object."
        ),
    ] = _VLM
    for_training: Annotated[
        bool,
        Meta(description="Write training rows for a captioner in TRL's format, into a folder."),
    ] = False
    training: Annotated[
        TrainingSpec | Mapping[str, Any], Meta(description="Captions that become rows.")
    ] = _TRAINING
    last: Annotated[
        int | None,
        Meta(ge=1, description="Use only the last N states of each trajectory (default: all)."),
    ] = None
    limit: LimitOption = None
    budget_usd: BudgetOption = None
    concurrency: ConcurrencyOption = 16
    engine: EngineOption = None
    resume: ResumeOption = True
    retry_unscored: RetryUnscoredOption = False

    def check(self) -> None:
        """Validates options that depend on each other."""
        spec = TrainingSpec.read(self.training)
        if not self.for_training and (changed := [name for name in spec.table() if name]):
            raise UsageError(
                f"{', '.join(changed)}: only with training data (for_training)",
                parameters=("for_training",),
            )
        if self.for_training and self.engine is not None:
            raise UsageError(
                "an engine can only write a caption file, not training data",
                parameters=("for_training", "engine"),
            )


@dataclass(frozen=True)
class CaptionResult(Printed):
    """Result of a run.

    Attributes:
        tally: Counts of images, reasons for missing captions, and model usage.
        output: The caption file, or the folder with rows.
        rows: The number of training rows; None if a caption file was made, or the run was stopped.
        mended: The number of rows whose caption a person corrected.
        dropped: Images that gave no row, by reason.
    """

    tally: CaptionTally
    output: str
    rows: int | None = None
    mended: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    for_training: bool = False
    of_files = True

    def to_dict(self) -> dict[str, Any]:
        """Returns the counts as a JSON object."""
        usage, unscored = msgspec.to_builtins(self.tally.usage), dict(self.tally.unscored)
        counts = {**asdict(self.tally), "usage": usage, "unscored": unscored}
        return {**counts, "output": self.output}

    def notes(self) -> Iterator[str]:
        """Yields why captions and rows are missing, and what may help."""
        tally, without = self.tally, sum(self.tally.unscored.values())
        if self.rows is not None:
            yield self.rows_line()
        if tally.truncated:
            yield (
                f"{tally.truncated} captions reached the token limit and end with a note; "
                "`captioner.max_tokens` raises it"
            )
        if without:
            counts = (f"{reason} {count}" for reason, count in tally.unscored.most_common())
            yield f"without a caption: {', '.join(counts)}"
        if tally.broken:
            yield f"{tally.broken} lines are not trajectories and were left out"
        yield from (f"  {problem}" for problem in tally.problems[:10])
        if without + tally.broken > 10:
            yield f"  … and {without + tally.broken - 10} more"
        if not tally.stopped and tally.unscored.keys() - set(RETRIED):
            yield "the same run with `retry_unscored` retries them"

    @property
    def exit_code(self) -> int:
        """Returns 3 if something has no caption or is broken, 130 if the run was stopped."""
        if self.tally.stopped:
            return EXIT_INTERRUPTED
        return EXIT_SOME if self.tally.unscored or self.tally.broken else EXIT_ALL

    @property
    def captions(self) -> str:
        """Returns the path of the caption file."""
        return str(Path(self.output) / CAPTIONS) if self.for_training else self.output

    def to_pandas(self) -> Any:
        """Returns the captions in the file, including those of earlier runs, as a pandas
        DataFrame.
        """
        columns = ("image", "caption", "unscored", "truncated")
        return data_frame(list(map(attrgetter(*columns), read_captions(self.captions))), columns)

    def rows_line(self) -> str:
        """Returns a line with how many images became rows, and why others did not."""
        counts = Counter(self.dropped).most_common()
        dropped = ", ".join(f"{reason} {count}" for reason, count in counts) or "none"
        mended = f" ({self.mended} of them corrected by hand)" if self.mended else ""
        return f"{self.rows} rows{mended} -> {self.output}/{ROWS}; images left out: {dropped}"

    def __str__(self) -> str:
        tally = self.tally
        counts = [
            f"{tally.made} captions made",
            f"{tally.kept} already in the file",
            f"{tally.equal} files identical to another",
        ]
        return (
            f"{', '.join(counts)}, {sum(tally.unscored.values())} images without a caption "
            f"-> {self.output}"
        )


@as_run(CaptionConfig)
async def caption(
    config: CaptionConfig,
    *,
    stop: asyncio.Event | None = None,
    progress: Callable[[CaptionTally], None] = lambda tally: None,
) -> CaptionResult:
    """Captions the screenshots of trajectories, each image once; the same call resumes.

    Args:
        config: The trajectories, the captioner, and where captions or rows are written.
        stop: An event; once it is set, no further image is started.
        progress: Called with the tally as the run proceeds.

    Returns:
        The counts; the captions are in the file.

    Raises:
        UsageError: The configuration is invalid, or nothing could be read.
        EndpointError: The model's endpoint accepts no call.
    """
    engine = make_engine(config.engine) if config.engine is not None else None
    options: dict[str, Any] = {
        "last": config.last,
        "limit": config.limit,
        "concurrency": config.concurrency,
        "resume": config.resume,
        "retry_unscored": config.retry_unscored,
        "stop": stop,
        "progress": progress,
    }
    with _opened(config) as (trajectories, recordings):
        captioner = _captioner(config, engine)
        options["keep"] = _lasting(recordings, config)
        if not config.for_training:
            tally = await caption_files(
                trajectories, captioner, config.output, engine=engine, **options
            )
            return CaptionResult(tally, str(config.output))
        spec = TrainingSpec.read(config.training)
        made = await training_data(trajectories, captioner, config.output, spec, **options)
        rows = None if made.asked.stopped else made.rows
        return CaptionResult(
            made.asked, str(config.output), rows, made.mended, dict(made.dropped), for_training=True
        )


def plan_caption(config: CaptionConfig) -> RunPlan:
    """Plans the run: its work and model calls, without making any. Raises UsageError."""
    engine = make_engine(config.engine) if config.engine is not None else None
    with _opened(config, planned=True) as (trajectories, _):
        captioner = _captioner(config, engine)
        file = Path(config.output) / CAPTIONS if config.for_training else Path(config.output)
        expect_file(config.output, "captions")
        about: dict[str, Any] = {"last": config.last, "limit": config.limit}
        about |= {"resume": config.resume, "retry_unscored": config.retry_unscored}
        plan = plan_captions(trajectories, captioner, file, **about)
        usage = plan.usage
        if usage is not None:
            usage = replace(usage, usd=compute_cost(usage, *_model_and_prices(config)))
    return RunPlan(
        work=(
            f"{plan.todo} images to caption, {plan.kept} already in the file, {plan.equal} "
            "files identical to another",
        ),
        counts={
            "pictures": plan.todo,
            "kept": plan.kept,
            "equal": plan.equal,
            "broken": len(plan.problems),
        },
        usage=usage,
        unknown="this captioner cannot estimate its usage",
        most=config.for_training,
        problems=plan.problems,
    )


def _lasting(recordings: Sequence[Recording], config: CaptionConfig) -> Callable[[str], str]:
    """Returns a function that copies a picture to `images/` next to the captions if it exists for
    the run only, and returns the path that lasts.
    """
    temporary = [recording.file.parent for recording in recordings]
    root = Path(config.output) if config.for_training else Path(config.output).parent

    def keep(path: str) -> str:
        if any(Path(path).is_relative_to(folder) for folder in temporary):
            return str(copy_image(path, root / "images"))
        return path

    return keep


@contextmanager
def _opened(
    config: CaptionConfig, *, planned: bool = False
) -> Iterator[tuple[list[str], list[Recording]]]:
    """Opens the trajectory files, within the run's budget."""
    place: dict[str, Any] = {"folder" if config.for_training else "file": str(config.output)}
    again = not config.resume
    with (
        config.opened() as (paths, recordings),
        run_budget(config.budget_usd, **place, begin_again=again, planned=planned),
    ):
        yield opened_folders(paths), recordings


def _captioner(config: CaptionConfig, engine: Engine | None) -> Captioner:
    """Makes the captioner.

    A model without a concurrency of its own gets the run's. Raises UsageError.
    """
    made = config.captioner
    if isinstance(made, CaptionerConfig):
        table = made.mapping()
        if "model" in CaptionerConfig.options_for(table):
            if not table.get("model"):
                raise UsageError(
                    f"model is missing; the captioner {made.name} needs a vision model"
                )
            model = table["model"]
            options = model.options if isinstance(model, ModelConfig) else model
            sets = isinstance(options, Mapping) and "concurrency" in options
            if "concurrency" in model_options(get_name(model)) and not sets:
                table.setdefault("concurrency", config.concurrency)
        elif "model" in table:
            raise UsageError(
                f"model: the captioner {made.name} does not use a model; leave it out",
                parameters=("model",),
            )
        made = table
    captioner = make_captioner(made)
    expect_pictures(captioner, engine)
    return captioner


def _model_and_prices(config: CaptionConfig) -> tuple[str | None, str | None]:
    """Returns the name of the captioner's model, and its price table."""
    if not isinstance(config.captioner, CaptionerConfig):
        return None, None
    table = config.captioner.table()
    model = table.get("model")
    named = get_name(model)
    prices = table.get("prices") or (model.get("prices") if isinstance(model, Mapping) else None)
    return (named if isinstance(named, str) else None), prices if isinstance(prices, str) else None
