"""Runs an agent on the tasks of a benchmark and compares its results with the papers' in tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import msgspec
from msgspec import Meta

from prill.config.values import get_name
from prill.emulators.settings import EnvironmentLike
from prill.emulators.task_source import fingerprint, join_names
from prill.episodes.record import RecordTally
from prill.errors import UsageError
from prill.io.kinds import TRAJECTORIES
from prill.io.outputs import check_output, expect_file, expect_writable
from prill.io.store import read_trajectories
from prill.io.tables import import_pandas
from prill.papers.bench.figures import Bench, make_bench, read_runs
from prill.papers.bench.mind2web import (
    PlayedTurn,
    RecordedBench,
    played_turn,
    recorded_bench,
    recorded_turns,
)
from prill.papers.bench.papers import Benchmark, Paper, list_tasks, paper_names, read_paper
from prill.papers.bench.tables import FIGURES, PICTURE, TABLES, summary_text, write_bench
from prill.papers.mind2web.config import Mind2WebConfig
from prill.papers.mind2web.pages.conversations import without_pages
from prill.policies.registry import PolicyLike
from prill.protocols import LanguageModel, Learner
from prill.refine.reflector import LessonsConfig
from prill.refine.reflexion import ReflexionProgress, check_again, run_reflexion
from prill.refine.retries import RetrySpec
from prill.runs.base import synchronous, wait_for
from prill.runs.plan import RunPlan
from prill.runs.reflexion import (
    challenge_from_case,
    learner_from_case,
    make_play_settings,
    plan_retries,
)
from prill.runs.rollout.cases import Case
from prill.runs.rollout.episodes import (
    EpisodePlan,
    EpisodesConfig,
    RolloutSession,
    record_session,
    session,
)
from prill.types import Trajectory

EPISODES = "episodes"
_BENCHMARKS: tuple[Benchmark, ...] = get_args(Benchmark)
_SEEDS = "0-4"  # where neither the agent nor the task list belongs to a paper
_LESSONS = LessonsConfig()


@dataclass(frozen=True, kw_only=True)
class BenchConfig(EpisodesConfig):
    """Configuration of `prill papers bench`: run an agent on a benchmark and compare it with
    published results.
    """

    environment: Annotated[
        EnvironmentLike,
        Meta(description=f"Benchmark, with its tasks and options: {', '.join(_BENCHMARKS)}."),
    ]
    policy: Annotated[
        PolicyLike | None,
        Meta(description="Policy of the agent: a name, module:Object or file.py:Object."),
    ] = None
    output: Annotated[
        str | Path, Meta(description="Output folder. An interrupted run resumes there.")
    ]
    seeds: Annotated[
        int | str | Sequence[int] | None,
        Meta(
            description="Seeds of each task (default: those of the agent's paper, or of "
            f"the task list; else {_SEEDS})."
        ),
    ] = None  # type: ignore[assignment]
    trials: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Maximum number of attempts at a task while it fails (default: "
            "from the agent's paper, else 1).",
        ),
    ] = None
    lessons: Annotated[
        LessonsConfig, Meta(description="How lessons are generated between trials.")
    ] = _LESSONS
    beside: Annotated[
        str | Path | Sequence[str | Path] | None,
        Meta(
            description="Published results to compare with: names of papers, or files of "
            "your own; none for no comparison."
        ),
    ] = None

    ablation: Annotated[
        str | None,
        Meta(
            description="Run the rows of a table in the agent's paper, one after the "
            "other. An unknown name lists the tables."
        ),
    ] = None

    def check(self) -> None:
        """Refuses an environment that is not a benchmark, and incompatible options."""
        if self.seeds is not None:
            super().check()
        if isinstance(self.beside, list | tuple):
            object.__setattr__(self, "beside", ",".join(map(str, self.beside)))
        if self.benchmark not in _BENCHMARKS:
            raise UsageError(
                f"environment {self.benchmark}: expected one of {', '.join(_BENCHMARKS)}",
                parameters=("environment",),
            )
        if self.benchmark == "mind2web" and (self.trials or 1) > 1:
            raise UsageError(
                "trials: recorded steps can only be played once", parameters=("trials",)
            )

    @property
    def benchmark(self) -> Benchmark:
        """The name of the benchmark."""
        return cast(Benchmark, self.place.name)

    @property
    def episodes(self) -> Path:
        """The folder of the episodes, in the form of `prill reflexion`."""
        return Path(self.output) / EPISODES


@dataclass(frozen=True)
class BenchResult:
    """The results of an agent on a benchmark.

    Args:
        figures: All figures, as in `results.json`.
        output: The folder with the tables, figures, chart and episodes.
        lost: Episodes that could not begin.
        problem: The most recent error that aborted an episode or kept it from starting. None: none.
    """

    figures: Bench | RecordedBench
    output: str
    lost: int = 0
    problem: str | None = None

    @property
    def complete(self) -> bool:
        """Whether every episode has an outcome."""
        return not self.figures.missing and not self.lost

    @property
    def broken(self) -> bool:
        """Whether any episode was aborted or could not begin."""
        missing = self.figures.missing
        return bool(
            self.lost
            or (
                missing
                if isinstance(missing, int)
                else {"broke off", "could not begin"} & missing.keys()
            )
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the tables, the figures and the chart."""
        return tuple(str(Path(self.output) / name) for name in (TABLES, FIGURES, PICTURE))

    def table(self) -> dict[str, Any]:
        """The figures, for JSON."""
        table: dict[str, Any] = msgspec.to_builtins(self.figures, str_keys=True)
        return table

    def to_pandas(self) -> Any:
        """Returns a pandas table with a row for each task of each task list. Recorded steps get a
        row for each split.
        """
        pandas, figures = import_pandas(), self.figures
        if isinstance(figures, RecordedBench):
            rows = [
                {"split": split.name, **msgspec.to_builtins(split.all, str_keys=True)}
                for split in figures.splits
            ]
        else:
            rows = [
                {"list": part.title, **msgspec.to_builtins(row)}
                for part in figures.sections
                for row in part.tasks
            ]
        return pandas.json_normalize(rows)

    def __str__(self) -> str:
        return summary_text(self.figures)


async def bench_async(
    config: BenchConfig, *, progress: Callable[[ReflexionProgress], None] = lambda stage: None
) -> BenchResult:
    """Runs an agent on a benchmark and writes tables, figures and a chart. The same call resumes a
    stopped run.

    Args:
        config: Which benchmark, and who plays.
        progress: Called after every episode.

    Returns:
        The figures; they print as tables.

    Raises:
        UsageError: The configuration cannot be carried out, or the folder holds another run.
        EndpointError: A model's endpoint takes no call.
        EnvironmentFailedError: Nothing can begin in the environment.
    """
    if config.ablation is not None:
        raise UsageError(
            "ablation: it has several runs; call prill.papers.bench.ablation",
            parameters=("ablation",),
        )
    config, papers = choose(config)
    _check_output(config)
    if config.benchmark == "mind2web":
        return await _recorded(config, papers, progress)
    async with session(config, config.episodes) as made:
        run = _Run.of(config, made)
        await run_reflexion(
            made.pool,
            run.challenges,
            None,
            config.episodes,
            run.retries,
            **run.rest,
            retry_broken=config.retry_broken,
            progress=progress,
        )
        figures = make_bench(
            read_runs(config.episodes, made.setting.sites),
            papers,
            benchmark=config.benchmark,
            agent=made.plan.agent,
            trials=run.retries.attempts,
            settings={
                **run.rest["settings"],
                "seeds": config.seeds,
                "max_steps": made.max_steps,
                **_held(made),
            },
        )
    write_bench(Path(config.output), figures)
    return BenchResult(figures, str(config.output))


bench = synchronous(bench_async)
"""Synchronous version of `bench_async` for scripts and notebooks, with the same parameters."""


def plan_bench(config: BenchConfig) -> RunPlan:
    """Estimates the episodes and model calls of the run, without calling a model.

    Args:
        config: Which benchmark, and who plays.

    Returns:
        The plan.

    Raises:
        UsageError: The configuration cannot be carried out.
    """

    async def plan() -> RunPlan:
        chosen, _ = choose(config)
        _check_output(chosen)
        async with session(chosen, chosen.episodes, planned=True) as made:
            if chosen.benchmark == "mind2web":
                return EpisodePlan.of(made).run_plan()
            run = _Run.of(chosen, made)
            check_again(made.pool, run.challenges, None, chosen.episodes, run.retries, **run.rest)
            trials = run.retries.attempts
            return plan_retries(
                EpisodePlan.of(made, trials), None, asks=trials > 1, output=chosen.episodes
            )

    return wait_for(plan)


def choose(config: BenchConfig) -> tuple[BenchConfig, list[Paper]]:
    """Fills in unset tasks, seeds and trials from the agent's paper, or from the paper of the task
    list.

    Args:
        config: Which benchmark, and who plays.

    Returns:
        The configuration that is played, and the papers whose figures stand next to its own.

    Raises:
        UsageError: No policy is named, or tasks are missing.
    """
    policy, place = get_name(config.policy), config.place
    if config.policy is None:
        raise UsageError(
            "policy is missing; give a policy of prill's, or one of your own",
            parameters=("policy",),
        )
    ready = [read_paper(name) for name in paper_names(config.benchmark)]
    followed = [paper for paper in ready if policy in paper.agents]
    if config.benchmark == "mind2web":
        named = _named(config)
        return config.copy_with(seeds=config.seeds or "0", trials=1), (
            followed or ready
        ) if named is None else named
    tasks = getattr(place, "tasks", None)
    if tasks is None:
        tasks = (
            "all"
            if config.benchmark != "miniwob"
            else next((p.list_name for p in followed if p.list_name), None)
        )
        if tasks is None:
            lists = ", ".join(
                dict.fromkeys(paper.list_name for paper in ready if paper.list_name is not None)
            )
            raise UsageError(
                f"tasks is missing; {policy} is not a paper's agent, so give a list "
                f"({lists}), tasks, or all",
                parameters=("tasks",),
            )
    listed = [paper for paper in ready if paper.list_name == tasks]
    # The desk has as many scenarios as the paper played, for every agent.
    source = next(
        iter([*followed, *listed, *(ready if config.benchmark == "airline" else [])]), None
    )
    usual = (source.seeds if source else None) or (
        "0" if config.benchmark == "webarena" else _SEEDS
    )
    trials = config.trials or (followed[0].trials if followed else 1)
    if trials == 1 and config.lessons.model is not None:
        raise UsageError(
            "lessons.model: there are no lessons with one trial; give more trials",
            parameters=("lessons.model", "trials"),
        )
    chosen = config.copy_with(
        environment=place.copy_with(tasks=join_names(list_tasks(listed[0])) if listed else tasks),
        seeds=config.seeds or usual,
        trials=trials,
    )
    if (named := _named(config)) is not None:
        return chosen, named
    if config.benchmark == "webarena":  # figures for other tasks are not comparable
        return chosen, [] if getattr(place, "shop", False) or getattr(
            place, "configs", None
        ) else ready
    return chosen, [paper for paper in ready if paper in followed or paper in listed] or ready


def _named(config: BenchConfig) -> list[Paper] | None:
    """Returns the papers that the configuration names. None if it names none."""
    if config.beside is None:
        return None
    names = (
        [name.strip() for name in str(config.beside).split(",")] if config.beside != "none" else []
    )
    papers = [read_paper(name) for name in names]
    for name, paper in zip(names, papers, strict=True):
        if paper.benchmark != config.benchmark:
            raise UsageError(
                f"beside {name}: its figures are for {paper.benchmark}, not for {config.benchmark}",
                parameters=("beside",),
            )
    return papers


def _check_output(config: BenchConfig) -> None:
    folder = Path(config.output)
    expect_file(folder, "a folder")
    for name in (TABLES, FIGURES, PICTURE):
        expect_writable(folder / name)
    check_output(config.episodes / TRAJECTORIES, "trajectories", continued=True)


@dataclass(frozen=True)
class _Run:
    """The objects of a run, created in its session."""

    challenges: Sequence[Any]
    retries: RetrySpec
    rest: dict[str, Any]

    @classmethod
    def of(cls, config: BenchConfig, made: RolloutSession) -> _Run:
        lessons, trials = config.lessons, config.trials or 1
        model = None if lessons.model is None else made.model(lessons.model)
        # With one trial the agent learns nothing between trials, so every policy is accepted.
        make = partial(learner_from_case if trials > 1 else _player, made, model, lessons)
        if trials > 1 and made.rows:
            # Refuse an agent that takes no lessons before any episode is played.
            make(made.rows[0], (), 0)
        settings: dict[str, Any] = {
            "policy": made.plan.agent,
            "environment": made.environment,
            "run": fingerprint(list(made.run)),
        }
        if trials > 1:
            settings["lessons"] = {**lessons.settings(), "model": get_name(lessons.model)}
        # The papers count a fixed number of trials, regardless of the lessons.
        retries = RetrySpec(attempts=trials, stop_on_repeat=False)
        challenges = [challenge_from_case(made, make, row) for row in made.rows]
        return cls(challenges, retries, {"play": make_play_settings(made), "settings": settings})


def _player(
    made: RolloutSession,
    model: LanguageModel | None,
    lessons: LessonsConfig,
    row: Case,
    learnt: Sequence[str],
    number: int,
) -> Learner:
    return cast(Learner, made.plan.make(row))


def _held(made: RolloutSession) -> dict[str, Any]:
    """Returns the settings in effect and the options of the agent."""
    return {"in_force": dict(made.settings), "options": dict(made.plan.options)}


# Recorded steps, which are played once and marked step by step


async def _recorded(
    config: BenchConfig, papers: Sequence[Paper], progress: Callable[[ReflexionProgress], None]
) -> BenchResult:
    place = config.place
    assert isinstance(place, Mind2WebConfig)
    files = place.files()
    async with session(config, config.episodes) as made:
        total = len(made.rows)
        counts = await record_session(
            made,
            progress=lambda recorded: progress(ReflexionProgress("play", 0, recorded.total, total)),
        )
        figures = _recorded_figures(config, made, files, papers, counts)
    write_bench(Path(config.output), figures)
    return BenchResult(figures, str(config.output), counts.lost, counts.last_problem)


def _recorded_figures(
    config: BenchConfig,
    made: RolloutSession,
    files: dict[Path, str],
    papers: Sequence[Paper],
    counts: RecordTally,
) -> RecordedBench:
    """Computes the results of this run's episodes. Other runs in the folder have other ids."""
    rows = {made.id(row): row for row in made.rows}
    path = config.episodes / TRAJECTORIES
    spec = made.setting.environments[0].spec
    by_turn: dict[str, list[tuple[Case, Trajectory]]] = {}
    for item in read_trajectories(path, on_error="skip") if path.exists() else ():
        if item.id in rows:
            by_turn.setdefault(rows[item.id].task, []).append((rows[item.id], without_pages(item)))
    played: list[PlayedTurn] = [
        played_turn(turn, episode, spec.marking, seed=row.seed)
        for file, split in files.items()
        for turn in recorded_turns(file, split, broken=lambda problem: None)  # they could not begin
        for row, episode in by_turn.get(turn.id, ())
    ]
    settings = {
        "policy": made.plan.agent,
        "run": fingerprint(list(made.run)),
        "seeds": config.seeds,
        "lost": spec.lost,
        **_held(made),
    }
    return recorded_bench(
        played,
        papers,
        agent=made.plan.agent,
        marking=spec.marking,
        settings=settings,
        not_begun=counts.lost,
    )
