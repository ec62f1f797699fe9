"""Runs an agent on the tasks of a benchmark, or each row of a paper's ablation table, and compares
its results with the papers' in tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import msgspec
from msgspec import Meta

from prill.config.shared import RunFolderOption
from prill.config.values import Config, get_name
from prill.emulators.task_source import fingerprint, join_names
from prill.episodes.cases import Case
from prill.episodes.episodes import (
    EpisodePlan,
    EpisodesConfig,
    PolicyOption,
    RolloutSession,
    record_session,
    session,
    settings_text,
)
from prill.errors import UsageError
from prill.io.kinds import TRAJECTORIES
from prill.io.outputs import check_output, expect_file, expect_writable, write_output
from prill.io.store import iter_trajectories
from prill.io.tables import import_pandas, markdown_cell
from prill.papers.bench.figures import Bench, make_bench, read_runs
from prill.papers.bench.mind2web import (
    METRICS,
    PlayedTurn,
    RecordedBench,
    played_turn,
    recorded_bench,
    recorded_turns,
    their_name,
)
from prill.papers.bench.papers import (
    Ablation,
    AblationRow,
    Benchmark,
    Paper,
    list_tasks,
    paper_names,
    read_paper,
)
from prill.papers.bench.tables import (
    FIGURES,
    PICTURE,
    TABLES,
    count_cell,
    printed_cells,
    share_cell,
    summary_text,
    table_text,
    theirs_name,
    wording,
    write_bench,
)
from prill.papers.mind2web.environment import Mind2WebConfig
from prill.papers.mind2web.pages.state import without_pages
from prill.plans import RunPlan, total_usage
from prill.policies.registry import PolicyConfig
from prill.protocols import Learner
from prill.refine.reflector import LessonsConfig, LessonsOption
from prill.refine.reflexion import (
    ReflexionProgress,
    Retries,
    challenge_from_case,
    learner_from_case,
    make_play_settings,
    plan_retries,
)
from prill.refine.retries import RetrySpec
from prill.running import EXIT_ALL, EXIT_SOME, Printed, as_run, wait_for
from prill.types import Trajectory

EPISODES = "episodes"
_BENCHMARKS: tuple[Benchmark, ...] = get_args(Benchmark)
_SEEDS = "0-4"  # where neither the agent nor the task list belongs to a paper
_LESSONS = LessonsConfig()


@dataclass(frozen=True, kw_only=True)
class BenchConfig(Config):
    """Configuration of `prill papers bench`: run an agent and compare it with published results."""

    spec: EpisodesConfig
    policy: PolicyOption = None
    output: RunFolderOption
    trials: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Maximum number of attempts at a task while it fails (default: the "
            "paper's, else 1).",
        ),
    ] = None
    lessons: LessonsOption = _LESSONS
    baselines: Annotated[
        str | Path | Sequence[str | Path] | None,
        Meta(description="Published results to compare with: papers, your files, or none."),
    ] = None

    ablation: Annotated[
        str | None,
        Meta(description="Table of the agent's paper to run. An unknown name lists the tables."),
    ] = None

    def check(self) -> None:
        """Refuses an environment that is not a benchmark, and incompatible options."""
        if isinstance(self.baselines, list | tuple):
            object.__setattr__(self, "baselines", ",".join(map(str, self.baselines)))
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
        return cast(Benchmark, self.spec.place.name)

    @property
    def episodes(self) -> Path:
        """The folder of the episodes, in the form of `prill reflexion`."""
        return Path(self.output) / EPISODES


@dataclass(frozen=True)
class BenchResult(Printed):
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

    def notes(self) -> Iterator[str]:
        """Yields the files, and what to do about broken episodes."""
        return _notes(self, str(Path(self.output) / EPISODES))

    @property
    def exit_code(self) -> int:
        """Returns 3 if some episodes have no outcome."""
        return EXIT_ALL if self.complete else EXIT_SOME

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

    def to_dict(self) -> dict[str, Any]:
        """The figures, for JSON."""
        table: dict[str, Any] = msgspec.to_builtins(self.figures, str_keys=True)
        return table

    def to_pandas(self) -> Any:
        """Returns a pandas table with a row for each task of each list, or for each split."""
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


def _notes(result: BenchResult | AblationResult, episodes: str) -> Iterator[str]:
    yield f"-> {', '.join(result.files)}; the episodes are in {episodes}"
    if result.problem is not None:
        yield f"last error: {result.problem}"
    if result.broken:
        yield (
            "`retry_broken` repeats episodes that ended with an error; those that could not start "
            "are always retried"
        )


@as_run(BenchConfig)
async def bench(
    config: BenchConfig, *, progress: Callable[[ReflexionProgress], None] = lambda stage: None
) -> BenchResult:
    """Runs an agent on a benchmark and writes tables and a chart, or resumes a stopped run.

    Args:
        config: The benchmark and the agent.
        progress: Called after every episode.

    Returns:
        The figures; they print as tables.

    Raises:
        UsageError: The configuration cannot be carried out, or the folder holds another run.
        EndpointError: A model's endpoint cannot be used.
        EnvironmentFailedError: No episode can start in the environment.
    """
    if config.ablation is not None:
        raise UsageError(
            "ablation: it has several runs; call prill.papers.bench.ablation",
            parameters=("ablation",),
        )
    config, papers = choose(config)
    _check_output(config)
    async with session(config.spec, config.episodes, policy=config.policy) as made:
        if config.benchmark == "mind2web":
            recorded = await _recorded(config, made, papers, progress)
            write_bench(Path(config.output), recorded.figures)
            return recorded
        run, rest = _prepared(config, made)
        retries = Retries(*run, **{**rest, "progress": progress})
        await retries.run(retry_broken=config.spec.retry_broken, retry_unscored=False)
        figures = make_bench(
            read_runs(config.episodes, made.setting.sites),
            papers,
            benchmark=config.benchmark,
            agent=made.plan.agent,
            trials=config.trials or 1,
            settings={
                **rest["settings"],
                "seeds": config.spec.seeds,
                "max_steps": made.max_steps,
                **_settings_and_options(made),
            },
        )
    write_bench(Path(config.output), figures)
    return BenchResult(figures, str(config.output))


def plan_bench(config: BenchConfig) -> RunPlan:
    """Estimates the episodes and model calls of the run, or of all rows of an ablation table,
    without calling a model.

    Args:
        config: The benchmark and the agent.

    Raises:
        UsageError: The configuration cannot be carried out.
    """
    if config.ablation is not None:
        plans = [plan_bench(one) for _, one in rows_of_ablation(config)[1]]
        seconds = [plan.seconds for plan in plans if plan.seconds is not None]
        return RunPlan(
            work=tuple(line for plan in plans for line in plan.work),
            counts=sum((Counter(plan.counts) for plan in plans), Counter()),
            usage=total_usage(plan.usage for plan in plans),
            most=any(plan.most for plan in plans),
            seconds=sum(seconds) if len(seconds) == len(plans) else None,
        )

    async def plan() -> RunPlan:
        chosen, _ = choose(config)
        _check_output(chosen)
        async with session(
            chosen.spec, chosen.episodes, policy=chosen.policy, planned=True
        ) as made:
            if chosen.benchmark == "mind2web":
                return EpisodePlan.of(made).run_plan()
            run, rest = _prepared(chosen, made)
            Retries(*run, **rest).expect_same()
            trials = chosen.trials or 1
            return plan_retries(
                EpisodePlan.of(made, trials), None, asks=trials > 1, output=chosen.episodes
            )

    return wait_for(plan)


def choose(config: BenchConfig) -> tuple[BenchConfig, list[Paper]]:
    """Returns the configuration with the paper's tasks, seeds and trials, and papers to show."""
    policy, environment = get_name(config.policy), config.spec.place
    if config.policy is None:
        raise UsageError(
            "policy is missing; give a policy of prill's, or one of your own",
            parameters=("policy",),
        )
    ready = [read_paper(name) for name in paper_names(config.benchmark)]
    followed = [paper for paper in ready if policy in paper.agents]
    named = _named(config)
    if config.benchmark == "mind2web":
        papers = (followed or ready) if named is None else named
        return config.copy_with(seeds=config.spec.seeds or "0", trials=1), papers
    tasks = getattr(environment, "tasks", None)
    if tasks is None and config.benchmark == "miniwob":
        tasks = next((paper.list_name for paper in followed if paper.list_name), None)
        if tasks is None:
            lists = ", ".join(dict.fromkeys(paper.list_name for paper in ready if paper.list_name))
            raise UsageError(
                f"tasks is missing; {policy} is not a paper's agent, so give a list "
                f"({lists}), tasks, or all",
                parameters=("tasks",),
            )
    tasks = tasks or "all"
    listed = [paper for paper in ready if paper.list_name == tasks]
    # The desk has as many scenarios as the paper played, for every agent.
    sources = [*followed, *listed, *(ready if config.benchmark == "airline" else [])]
    usual = next((paper.seeds for paper in sources[:1]), None)
    usual = usual or ("0" if config.benchmark == "webarena" else _SEEDS)
    trials = config.trials or (followed[0].trials if followed else 1)
    if trials == 1 and config.lessons.model is not None:
        raise UsageError(
            "lessons.model: there are no lessons with one trial; give more trials",
            parameters=("lessons.model", "trials"),
        )
    chosen = config.copy_with(
        environment=environment.copy_with(
            tasks=join_names(list_tasks(listed[0])) if listed else tasks
        ),
        seeds=config.spec.seeds or usual,
        trials=trials,
    )
    if named is not None:
        return chosen, named
    if config.benchmark == "webarena":  # figures for other tasks are not comparable
        others = getattr(environment, "shop", False) or getattr(environment, "configs", None)
        return chosen, [] if others else ready
    return chosen, [paper for paper in ready if paper in followed or paper in listed] or ready


def _named(config: BenchConfig) -> list[Paper] | None:
    """Returns the papers that the configuration names. None if it names none."""
    if config.baselines is None:
        return None
    papers = []
    names = str(config.baselines).split(",") if config.baselines != "none" else ()
    for name in map(str.strip, names):
        papers.append(paper := read_paper(name))
        if paper.benchmark != config.benchmark:
            raise UsageError(
                f"baselines {name}: its figures are for {paper.benchmark}, not for "
                f"{config.benchmark}",
                parameters=("baselines",),
            )
    return papers


def _check_output(config: BenchConfig) -> None:
    folder = Path(config.output)
    expect_file(folder, "a folder")
    for name in (TABLES, FIGURES, PICTURE):
        expect_writable(folder / name)
    check_output(config.episodes / TRAJECTORIES, "trajectories", continued=True)


def _prepared(config: BenchConfig, made: RolloutSession) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of `Retries`."""
    lessons, trials = config.lessons, config.trials or 1
    model = None if lessons.model is None else made.model(lessons.model)

    def make(row: Case, learnt: Sequence[str], number: int) -> Learner:
        if trials == 1:  # nothing is learnt between trials, so every policy is accepted
            return cast(Learner, made.plan.make(row))
        return learner_from_case(made, model, lessons, row, learnt, number)

    if made.rows:  # refuses an agent that takes no lessons before any episode is played
        make(made.rows[0], (), 0)
    settings: dict[str, Any] = {"policy": made.plan.agent, "environment": made.environment}
    settings["run"] = fingerprint(list(made.run))
    if trials > 1:
        settings["lessons"] = {**lessons.settings(), "model": get_name(lessons.model)}
    # The papers count a fixed number of trials, regardless of the lessons.
    retries = RetrySpec(attempts=trials, stop_on_repeat=False)
    challenges = [challenge_from_case(made, make, row) for row in made.rows]
    rest = {"play": make_play_settings(made), "settings": settings}
    return (made.pool, challenges, None, config.episodes, retries), rest


def _settings_and_options(made: RolloutSession) -> dict[str, Any]:
    """Returns the settings in effect and the options of the agent."""
    return {"in_force": dict(made.settings), "options": dict(made.plan.options)}


# Recorded steps, which are played once and marked step by step


async def _recorded(
    config: BenchConfig,
    made: RolloutSession,
    papers: Sequence[Paper],
    progress: Callable[[ReflexionProgress], None],
) -> BenchResult:
    """Plays the turns, and computes the results of this run's episodes."""
    environment = config.spec.place
    assert isinstance(environment, Mind2WebConfig)
    rows = {made.id(row): row for row in made.rows}  # other runs in the folder have other ids
    counts = await record_session(
        made, progress=lambda tally: progress(ReflexionProgress("play", 0, tally.total, len(rows)))
    )
    path = config.episodes / TRAJECTORIES
    spec = made.setting.environments[0].spec
    by_turn: dict[str, list[tuple[Case, Trajectory]]] = {}
    for item in iter_trajectories(path, on_error="skip") if path.exists() else ():
        if item.id in rows:
            by_turn.setdefault(rows[item.id].task, []).append((rows[item.id], without_pages(item)))
    played: list[PlayedTurn] = [
        played_turn(turn, episode, spec.marking(), seed=row.seed)
        for file, split in environment.files().items()
        for turn in recorded_turns(file, split, broken=lambda problem: None)  # they could not begin
        for row, episode in by_turn.get(turn.id, ())
    ]
    settings = {
        "policy": made.plan.agent,
        "run": fingerprint(list(made.run)),
        "seeds": config.spec.seeds,
        "lost": spec.lost,
        **_settings_and_options(made),
    }
    figures = recorded_bench(
        played,
        papers,
        agent=made.plan.agent,
        marking=spec.marking(),
        settings=settings,
        not_begun=counts.lost,
    )
    return BenchResult(figures, str(config.output), counts.lost, counts.last_problem)


@dataclass(frozen=True)
class AblationResult(Printed):
    """The results of each row of an ablation table.

    Args:
        name: The name of the table.
        paper: The paper that prints it.
        rows: The rows, each with its results.
        output: The folder with the table and one folder for each row.
    """

    name: str
    paper: Paper
    rows: tuple[tuple[AblationRow, BenchResult], ...]
    output: str

    def notes(self) -> Iterator[str]:
        """Yields the files, and what to do about broken episodes."""
        return _notes(self, str(Path(self.output) / "*" / EPISODES))

    @property
    def exit_code(self) -> int:
        """Returns 3 if some episodes have no outcome."""
        return EXIT_ALL if self.complete else EXIT_SOME

    @property
    def complete(self) -> bool:
        """Whether every episode of every row has an outcome."""
        return all(result.complete for _, result in self.rows)

    @property
    def broken(self) -> bool:
        """Whether any episode was aborted or could not begin."""
        return any(result.broken for _, result in self.rows)

    @property
    def problem(self) -> str | None:
        """The most recent error that aborted an episode or kept it from starting."""
        return next((r.problem for _, r in reversed(self.rows) if r.problem is not None), None)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the table and the figures."""
        return tuple(str(Path(self.output) / name) for name in (TABLES, FIGURES))

    def to_dict(self) -> dict[str, Any]:
        """The figures of each row, for JSON."""
        return {row.name: result.to_dict() for row, result in self.rows}

    def __str__(self) -> str:
        return ablation_text(self)


def rows_of_ablation(
    config: BenchConfig,
) -> tuple[Paper, tuple[tuple[AblationRow, BenchConfig], ...]]:
    """Returns the paper with the named table, and each row with the configuration that runs it."""
    policy = get_name(config.policy)
    papers = [
        paper
        for paper in map(read_paper, paper_names(config.benchmark))
        if policy in paper.agents and paper.ablations
    ]
    for paper in papers:
        if (found := paper.ablations.get(str(config.ablation))) is not None:
            return paper, tuple((row, _configured(config, found, row)) for row in found.rows)
    names = ", ".join(name for paper in papers for name in paper.ablations) or "none"
    raise UsageError(
        f"ablation {config.ablation}: on {config.benchmark} the tables of {policy} are {names}",
        parameters=("ablation",),
    )


def _configured(config: BenchConfig, table: Ablation, row: AblationRow) -> BenchConfig:
    base = PolicyConfig.read(config.policy, "policy")
    if not isinstance(base, PolicyConfig):
        raise UsageError(
            "ablation: it sets options, so give the name of a policy, not an instance",
            parameters=("policy", "ablation"),
        )
    name = row.policy or base.name
    known = {**PolicyConfig.options_for({"name": name}), "model": None}
    given = {key: value for key, value in base.options.items() if name == base.name or key in known}
    environment = config.spec.place
    if table.tasks is not None and getattr(environment, "tasks", "") is None:
        environment = environment.copy_with(tasks=table.tasks)
    return config.copy_with(
        ablation=None,
        environment=environment,
        policy=PolicyConfig(name, **{**given, **row.options}),
        seeds=config.spec.seeds if config.spec.seeds is not None else table.seeds,
        trials=config.trials or table.trials,
        output=Path(config.output) / re.sub(r"[^a-z0-9]+", "-", row.name.lower()).strip("-"),
    )


@as_run(BenchConfig)
async def ablation(
    config: BenchConfig, *, progress: Callable[[ReflexionProgress], None] = lambda stage: None
) -> AblationResult:
    """Runs the rows of a paper's ablation table, or resumes, and writes them as one table.

    Args:
        config: The benchmark, the agent, and the table.
        progress: Called after every episode.

    Returns:
        The results of each row; printing them shows a table.

    Raises:
        UsageError: As `bench` does, and for an unknown table.
    """
    paper, rows = rows_of_ablation(config)
    done = [(row, await bench.run_async(one, progress=progress)) for row, one in rows]
    result = AblationResult(str(config.ablation), paper, tuple(done), str(config.output))
    data = msgspec.json.format(msgspec.json.encode(result.to_dict()), indent=1)
    write_output(Path(config.output) / FIGURES, data.rstrip() + b"\n")
    write_output(Path(config.output) / TABLES, ablation_text(result).encode())
    return result


@as_run(BenchConfig)
async def bench_or_ablation(
    config: BenchConfig, *, progress: Callable[[ReflexionProgress], None] = lambda stage: None
) -> BenchResult | AblationResult:
    """Runs `bench`, or `ablation` if the configuration names a table."""
    run = bench if config.ablation is None else ablation
    result: BenchResult | AblationResult = await run.run_async(config, progress=progress)
    return result


def ablation_text(result: AblationResult) -> str:
    """Formats the rows as one Markdown table. Recorded steps get one table for each split."""
    parts = [f"# {markdown_cell(result.paper.title)}: {markdown_cell(result.name)}"]
    benches = [(row, done.figures) for row, done in result.rows]
    live = [(row, figures) for row, figures in benches if isinstance(figures, Bench)]
    steps = [(row, figures) for row, figures in benches if isinstance(figures, RecordedBench)]
    if live:
        parts.append(_live_table(live, result.paper))
    for split in dict.fromkeys(split.name for _, figures in steps for split in figures.splits):
        parts += [f"## {markdown_cell(split)}", _split_table(split, steps, result.paper)]
    if any("**theirs**" in part for part in parts):
        source = f"* theirs: {result.paper.paper}. From {result.paper.source}."
        parts += [wording()["theirs_ablation"], source]
    return "\n\n".join(parts) + "\n"


def _live_table(rows: Sequence[tuple[AblationRow, Bench]], paper: Paper) -> str:
    """Returns a table with a column for each category of the paper, or one column for all tasks."""
    played = []
    for row, figures in rows:
        section = next((s for s in figures.sections if s.title == paper.title), None)
        shown = section.categories if section else (figures.overall,)
        played.append((row, figures, {category.name: category for category in shown}))
    names = list(dict.fromkeys(name for _, _, found in played for name in found))
    lines: list[list[object]] = []
    theirs: list[list[object]] = []
    for row, figures, found in played:
        cells = [share_cell(found[n].success[-1]) if n in found else None for n in names]
        row_of_all = figures.overall
        missing = row_of_all.success[-1].missing
        end = [row_of_all.runs, missing, count_cell(row_of_all.replies)]
        lines.append([markdown_cell(row.name), _options(row), *cells, *end])
        at = next((i for i, column in enumerate(paper.columns) if column.name == row.theirs), None)
        if at is not None:
            published = {name: one.theirs[at] for name, one in found.items() if one.theirs}
            printed = map(published.get, names)
            cells = [None if one is None else f"{one.success:.1%}" for one in printed]
            theirs.append([theirs_name(row.name, ""), "", *cells, "", "", ""])
    head = ["row", "options", *names, "episodes", "without outcome", "unreadable"]
    return table_text(head, [*lines, *theirs])


def _split_table(
    split: str, rows: Sequence[tuple[AblationRow, RecordedBench]], paper: Paper
) -> str:
    lines: list[list[object]] = []
    theirs: list[list[object]] = []
    counting = rows[0][1].counting
    played = [(row, one) for row, figures in rows for one in figures.splits if one.name == split]
    for row, one in played:
        cells = map(share_cell, one.all.figures[counting].values())
        counts = [one.all.turns, one.all.missing, count_cell(one.all.replies)]
        lines.append([markdown_cell(row.name), _options(row), *counts, *cells])
        for printed in one.theirs:
            if row.theirs is not None and printed.name == their_name(paper, row.theirs):
                name = theirs_name(row.name, printed.model)
                theirs.append([name, *[""] * 4, *printed_cells(printed, METRICS[counting])])
    head = ["row", "options", "turns", "broke off", "unreadable", *METRICS[counting]]
    return table_text(head, [*lines, *theirs])


def _options(row: AblationRow) -> str:
    options = {**({"policy": row.policy} if row.policy else {}), **row.options}
    return markdown_cell(settings_text(options)) if options else "-"
