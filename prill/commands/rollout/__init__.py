"""`prill rollout`: record what a policy does in an environment, with labels from the environment beside it."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from prill.actions.early_stop import EarlyStop
from prill.commands.options import add_model_options, positive, run_budget
from prill.commands.rollout.airline import AIRLINE
from prill.commands.rollout.cases import Case, cases, fingerprint, numbers, read_plan
from prill.commands.rollout.environments import OWN, Setting
from prill.commands.rollout.mind2web import MIND2WEB
from prill.commands.rollout.phones import PHONES
from prill.commands.rollout.policies import PolicyPlan, plan_policy, read_assigned
from prill.commands.rollout.tables import flags_of, reads, words_of_table
from prill.commands.rollout.web import WEB
from prill.commands.rollout.webarena import WEBARENA
from prill.commands.runs.plan import Recorded as Recordings
from prill.commands.runs.plan import RunPlan, add_dry_run, recorded_in, show_plan, times
from prill.emulators.pool import Pool
from prill.emulators.registry import ENVIRONMENTS
from prill.errors import UsageError
from prill.evaluators.labels import TEMPLATE
from prill.files.kinds import INTERRUPTED, TRAJECTORIES
from prill.files.outputs import check_output, expect_place
from prill.models.devices import at_the_same_time
from prill.models.guard import PATIENCE
from prill.policies.registry import POLICIES
from prill.policies.scripted.policy import BEHAVIOURS, Behaviour
from prill.record import Episode, Recorded, record
from prill.types import Usage

if TYPE_CHECKING:
    from tqdm import tqdm


_MAX_WORKERS = 1000  # environments in one process: beyond it memory ends, or open files
# Stands in the help for whatever is named instead of a built-in environment.
_OWN = "module:Object|file.py:Object"
KINDS = {**WEB, "webarena": WEBARENA, "airline": AIRLINE, "mind2web": MIND2WEB, **PHONES}


class Environments(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Takes the user's own environments and those of other packages, too: they share one set of options."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        name, *words = values
        super().__call__(parser, namespace, [name if name in KINDS else _OWN, *words], option_string)
        namespace.environment, namespace.words = name, words

    def parser_of(self, name: str) -> argparse.ArgumentParser:
        """The parser of that environment's options."""
        parser: argparse.ArgumentParser = self._name_parser_map[name if name in KINDS else _OWN]
        return parser


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options: some for every environment, some for one."""
    parser.epilog = "Example: prill rollout miniwob --tasks click-link,enter-text --seeds 0-4 -o runs/a"
    add_environments(parser, _own_options)


def add_environments(
    parser: argparse.ArgumentParser,
    options: Callable[[argparse.ArgumentParser], None],
    *,
    required: bool = True,
    example: str = "",
) -> Environments:
    """A parser for each environment, with its own options and those of the command; `example` instead of `prill rollout`'s."""
    kinds = parser.add_subparsers(dest="environment", metavar="ENVIRONMENT", required=required, action=Environments)
    assert isinstance(kinds, Environments)
    purposes = {name: entry.what for name, entry in ENVIRONMENTS.entries.items()} | {_OWN: "an environment of your own"}
    for name, purpose in purposes.items():
        sub = kinds.add_parser(name, help=purpose, description=purpose, epilog=example or KINDS.get(name, OWN).example)
        options(sub)
        KINDS.get(name, OWN).configure(sub.add_argument_group(name))
    kinds.choices = None  # type: ignore[assignment]  # any other name is looked up when the run begins
    return kinds


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="folder to write to; a run is taken up where it ended"
    )
    add_dry_run(parser)
    what, who = add_episode_options(parser)
    what.add_argument(
        "--attempts", dest="plays", type=positive, default=1, metavar="N", help="times to play each task and seed (default 1)"
    )
    who.add_argument("--plan", metavar="TOML", help="scripted: file that lists the episodes, instead of --tasks and --seeds")
    who.add_argument("--behaviour", metavar="A,B", help=f"scripted: default solve; any of {', '.join(BEHAVIOURS)}")
    who.add_argument("--replay", metavar="FILE", help="replay: the trajectories whose actions are to be played again")


def add_episode_options(
    parser: argparse.ArgumentParser, *, tasks: str = "which tasks; see below", seeds: str = "default 0"
) -> tuple[argparse._ArgumentGroup, argparse._ArgumentGroup]:
    """Which episodes are played, and by whom; the groups of both. `session` makes them of the arguments.

    `tasks` and `seeds` are what the help says of these.
    """
    parser.set_defaults(plays=1, first_play=0, plan=None, behaviour=None, replay=None)
    what = parser.add_argument_group("episodes")
    what.add_argument("--tasks", metavar="A,B", help=tasks)
    what.add_argument("--seeds", default="0", metavar="0-4,7", help=f"seeds of each task, where it has any ({seeds})")
    what.add_argument("--limit", type=positive, metavar="N", help="the first N episodes only")
    what.add_argument("--workers", type=positive, metavar="N", help="episodes at a time (default 1, or one a device)")
    what.add_argument("--max-steps", type=positive, metavar="N", help="actions of an episode (default: the paper's for it)")
    what.add_argument(
        "--episode-timeout", type=_seconds, default=600.0, metavar="S", help="seconds of an episode (default 600)"
    )
    what.add_argument("--no-early-stop", action="store_true", help="let an agent that repeats itself go on")
    what.add_argument("--compare-text", action="store_true", help="other words in the same field are no repetition")
    what.add_argument("--retry-broken", action="store_true", help="play episodes again that ended with an error")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON on stdout")
    who = parser.add_argument_group("policy")
    purposes = "; ".join(f"{name}: {entry.what}" for name, entry in POLICIES.entries.items())
    names, place = ("--policy", "--actor", "--agent"), "NAME|module:Object|file.py:Object"
    who.add_argument(*names, metavar=place, help=f"{purposes}; or one of your own")
    who.add_argument("--direct", action="store_true", default=None, help="react: ask for the action without reasoning")
    who.add_argument(
        "--max-tokens", type=positive, metavar="N", help="of one reply (default: react 384, cogagent 1024, autoui 512)"
    )
    who.add_argument(
        "--temperature", type=_temperature, metavar="T", help="draws differ by seed and attempt (default 0; step 0.3)"
    )
    who.add_argument("--generation", choices=["18b", "9b"], help="cogagent: which model's form (default 9b)")
    who.add_argument(
        "--set",
        action="append",
        metavar="KEY=VALUE",
        help="any other option of the policy or the environment, as often as needed (policy.KEY, environment.KEY)",
    )
    add_model_options(parser)
    return what, who


def run(args: argparse.Namespace) -> int:
    """Records; 0 when every episode ended as it should, 3 when some broke off or have no label, 130 when interrupted."""
    expect_place(args.output, "a folder")
    check_output(Path(args.output) / TRAJECTORIES, "trajectories", [args.replay], continued=True)
    if args.dry_run:
        return show_plan(args, asyncio.run(plan_episodes(args)).run_plan())
    try:
        graded = list[bool]()
        counts = asyncio.run(record_session(args, lambda made, _: graded.append(made.setting.oracle is not None)))
    except KeyboardInterrupt:
        print("\nstopped; the same command takes up where this run ended", file=sys.stderr)
        return 130
    if args.json:
        print(json.dumps({**asdict(counts), "output": args.output}))
    summary = {
        "success": counts.success,
        "failure": counts.failure,
        "without a label": counts.undecided,
        "broke off": counts.broken,
        "could not begin": counts.lost,
        "already there": counts.skipped,
    }
    print(", ".join(f"{n} {name}" for name, n in summary.items() if n) or "nothing to do", "->", args.output, file=sys.stderr)
    if counts.last_problem is not None:
        print(f"the last that broke off or could not begin: {counts.last_problem}", file=sys.stderr)
    if (Path(args.output) / INTERRUPTED).exists():
        print(f"attempts that were interrupted are in {Path(args.output) / INTERRUPTED}", file=sys.stderr)
    return 3 if counts.broken or counts.lost or (any(graded) and counts.undecided) else 0


class Strict(argparse.ArgumentParser):
    """Takes whole words only, and raises UsageError where a parser of the command line would end the program."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


# What holds for a whole command, and not for the episodes that a table describes.
_NOT_OF_EPISODES = ("output", "json", "policy", "dry_run")


def arguments(words: Sequence[str], table: Mapping[str, Any] | None = None, *, place: str = "") -> argparse.Namespace:
    """The arguments of `prill rollout` from its words, for other commands, and from a table with its flags as keys.

    `place` is where the table stands, for messages. Raises UsageError.
    """
    parser = Strict(prog="prill rollout")
    environments = add_environments(parser, _own_options)
    if not table:
        return parser.parse_args(words)
    kind = words[0] if words[0] in KINDS else _OWN
    titles = ("episodes", "policy", "model", kind)
    flags = flags_of(environments.parser_of(words[0]), titles, without=_NOT_OF_EPISODES)
    return parser.parse_args([*words, *words_of_table(table, flags, place)])


def play(args: argparse.Namespace) -> Recorded:
    """Records what `prill rollout` with these arguments would, and gives the counts. Raises UsageError, EnvironmentFailure."""
    return asyncio.run(record_session(args))


async def plan_episodes(args: argparse.Namespace, attempts: int = 1) -> EpisodePlan:
    """What these arguments would play, each episode up to so many times; everything is made, and nothing is played."""
    async with session(args) as made:
        return EpisodePlan.of(made, args, attempts)


async def record_session(
    args: argparse.Namespace, finish: Callable[[Session, Recorded], object] = lambda made, counts: None
) -> Recorded:
    """Records what the arguments ask for, with a bar of progress; `finish` is told of it before everything is closed."""
    from prill.cli.showing import progress_bar

    async with session(args) as made:
        with progress_bar(total=len(made.rows), unit="episode", dynamic_ncols=True, file=sys.stderr, delay=0.2) as bar:
            counts = await record(
                made.pool,
                _episodes(made),
                Path(args.output),
                oracle=made.setting.oracle,
                max_steps=args.max_steps,
                timeout=args.episode_timeout,
                early_stop=made.early_stop,
                retry_broken=args.retry_broken,
                patience=patience_of(args),
                progress=partial(_show, bar),
            )
        finish(made, counts)
        return counts


@dataclass(frozen=True)
class Session:
    """What the arguments ask to be played: where, by whom, and which episodes.

    `run` is what tells this run from others in the same folder: its episodes have ids of their own.
    """

    environment: str
    setting: Setting[Any]
    pool: Pool[Any]
    plan: PolicyPlan
    rows: Sequence[Case]
    early_stop: EarlyStop | None
    run: Sequence[object]

    def id(self, row: Case) -> str:
        """Names the episode."""
        return row.id(self.environment, fingerprint([*self.run, self.setting.contents.get(row.task)]))


@asynccontextmanager
async def session(args: argparse.Namespace) -> AsyncIterator[Session]:
    """Makes everything that the arguments ask for, and closes it in the end; all models have one budget. Raises UsageError."""
    with run_budget(args, folder=args.output):
        async with _session(args) as made:
            yield made


@asynccontextmanager
async def _session(args: argparse.Namespace) -> AsyncIterator[Session]:
    kind, out = KINDS.get(args.environment, OWN), Path(args.output)
    args.policy = args.policy or kind.policy
    args.max_steps = args.max_steps or kind.max_steps
    if (args.workers or 1) > _MAX_WORKERS:
        raise UsageError(f"--workers {args.workers}: each has an environment of its own; give at most {_MAX_WORKERS}")
    args.concurrency = max(args.workers or 1, 16)  # an episode asks for one action at a time, so this never bounds devices
    if args.policy is None:
        raise UsageError(f"--policy is missing: choose from {', '.join(POLICIES.names())}, or name one of your own")
    assigned = read_assigned(args)
    with at_the_same_time():  # an oracle may ask a model while other episodes are played
        plan = plan_policy(args, kind.platform, assigned)
        if "text" in args:  # an environment that can show its pages in several ways
            args.text = args.text or plan.page_text
        if "marking" in args:  # one whose steps are marked in several ways
            args.marking = args.marking or plan.marking
        listed = _listed_cases(args)
        setting = kind.make(args, out / "images", assigned.environment)
    pool = Pool(setting.environments, patience=setting.patience)
    stops = kind.stops_early and not args.no_early_stop and args.policy not in ("scripted", "replay")
    early_stop = EarlyStop(compare_text=args.compare_text) if stops else None
    try:
        rows = (listed if listed is not None else _cases_of_options(args, plan, setting.tasks))[: args.limit]
        run = [args.environment, setting.fingerprint, args.policy, plan.agent, plan.fingerprint, args.max_steps, early_stop]
        yield Session(args.environment, setting, pool, plan, rows, early_stop, run)
    finally:
        try:
            await pool.close()
        finally:
            await setting.close()


@dataclass(frozen=True, kw_only=True)
class EpisodePlan:
    """The episodes of a session, as far as they are known before they are played.

    `attempts` is how often each may be played. `usage` is what an episode asks of models: None where nothing is known of it.
    """

    episodes: int
    tasks: int
    done: int
    attempts: int
    agent: str
    environment: str
    max_steps: int
    timeout: float
    workers: int
    usage: Usage | None
    recorded: Recordings
    graded: bool

    @classmethod
    def of(cls, made: Session, args: argparse.Namespace, attempts: int = 1) -> EpisodePlan:
        """The plan of a session that was made."""
        patience_of(args)
        recorded = recorded_in(Path(args.output))
        there = recorded.ids - (recorded.broken if args.retry_broken else frozenset())
        return cls(
            episodes=len(made.rows),
            tasks=len({row.task for row in made.rows}),
            done=sum(made.id(row) in there for row in made.rows),
            attempts=attempts,
            agent=made.plan.agent,
            environment=made.environment,
            max_steps=args.max_steps,
            timeout=args.episode_timeout,
            workers=made.pool.size,
            usage=recorded.usage if made.plan.asks_model else Usage(),
            recorded=recorded,
            graded=made.setting.oracle is not None,
        )

    @property
    def todo(self) -> int:
        """Episodes that are played, at most."""
        return self.episodes * self.attempts - self.done

    @property
    def all_usage(self) -> Usage | None:
        """What all of them ask of models."""
        return times(self.usage, self.todo)

    @property
    def most_seconds(self) -> float:
        """No run takes longer, by the limit of an episode."""
        return math.ceil(self.todo / self.workers) * self.timeout

    def line(self) -> str:
        """The plan in a line."""
        often = f", up to {self.attempts} times each" if self.attempts > 1 else ""
        done = f", {self.done} done" if self.done else ""
        what = f"{self.episodes} episodes of {self.tasks} tasks{often}{done}"
        return f"play {what}, in {self.environment} by {self.agent}; at most {self.max_steps} actions each"

    def run_plan(self) -> RunPlan:
        """The plan of a run that does nothing else."""
        counts = {"episodes": self.episodes, "tasks": self.tasks, "done": self.done, "max_steps": self.max_steps}
        return RunPlan(
            work=(self.line(),),
            counts=counts,
            usage=self.all_usage,
            most_seconds=self.most_seconds,
        )


def _episodes(made: Session) -> list[Episode[Any]]:
    return [
        Episode(
            id=made.id(row),
            task=partial(made.setting.task, name=row.task, seed=row.seed),
            policy=partial(made.plan.make, row),
            agent=made.plan.agent,
            # How the script was told to behave is noted with the label only.
            note=row.behaviour,
            metadata={} if row.behaviour else {"seed": row.seed, "attempt": row.attempt, **template_of_case(made, row)},
            needs=made.setting.needs.get(row.task, frozenset()),
        )
        for row in made.rows
    ]


def template_of_case(made: Session, row: Case) -> dict[str, int]:
    """What the task has in common with others, where the benchmark has told (WebArena)."""
    number = made.setting.templates.get(row.task)
    return {} if number is None else {TEMPLATE: number}


def _show(bar: tqdm[NoReturn], recorded: Recorded) -> None:
    bar.initial = recorded.skipped
    bar.n = recorded.total
    bar.update(0)


@reads(float)
def _temperature(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number <= 5.0:
        raise argparse.ArgumentTypeError("give a number from 0 to 5")
    return number


@reads(float)
def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < math.inf:
        raise argparse.ArgumentTypeError("give a number of seconds above 0")
    return number


def patience_of(args: argparse.Namespace) -> float:
    """Seconds in which nothing begins that end a run: for environments the same as for endpoints. Raises UsageError."""
    try:
        return PATIENCE if args.patience is None else _seconds(args.patience)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--patience {args.patience}: {error}") from None


def _listed_cases(args: argparse.Namespace) -> tuple[Case, ...] | None:
    """The episodes of `--plan`; None without one."""
    if not args.plan:
        return None
    if args.policy != "scripted":
        raise UsageError("--plan lists episodes of the scripted policy: add --policy scripted")
    return read_plan(Path(args.plan))


def _cases_of_options(args: argparse.Namespace, plan: PolicyPlan, tasks: Sequence[str]) -> tuple[Case, ...]:
    behaviours: Sequence[Behaviour | None] = (None,)
    if args.policy == "scripted":
        try:
            behaviours = msgspec.convert((args.behaviour or "solve").split(","), list[Behaviour])
        except msgspec.ValidationError:
            raise UsageError(f"--behaviour {args.behaviour!r}: choose from {', '.join(BEHAVIOURS)}") from None
    elif args.behaviour:
        raise UsageError("--behaviour is for the scripted policy: add --policy scripted")
    able = [task for task in tasks if plan.plays is None or task in plan.plays]
    if len(able) < len(tasks) and args.tasks != "all":
        missing = ", ".join(task for task in tasks if task not in able)
        raise UsageError(f"the {args.policy} policy cannot play {missing}; it plays {', '.join(sorted(plan.plays or ()))}")
    plays = range(args.first_play, args.first_play + args.plays)
    return cases(able, numbers(args.seeds, "--seeds"), plays, behaviours)
