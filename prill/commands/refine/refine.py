"""`prill refine`: an agent learns from its own attempts, as far as a judge finds them good."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from prill.commands.options import run_budget
from prill.commands.rollout import arguments, play
from prill.commands.rollout.cases import numbers
from prill.errors import UsageError
from prill.files.outputs import expect_place
from prill.models.registry import model_options
from prill.policies.registry import POLICIES, asks_a_model, make_policy
from prill.protocols import Demonstrator
from prill.refine.filtered_bc import PLAYED, Audience, Study, Table, read_study, run_study
from prill.refine.results import BASE, BY_ROUND, RESULTS, STUDY, TABLES, results_text, write_results
from prill.refine.training.weights import open_base
from prill.registry import options_of

if TYPE_CHECKING:
    from tqdm import tqdm

    from prill.scoring import Tally


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.epilog = "Example: prill refine filtered-bc examples/filtered_bc/miniwob.toml -o runs/bc --seeds 0,1,2"
    ways = parser.add_subparsers(dest="way", metavar="WAY", required=True)
    purpose = "filtered behavioural cloning: play, judge, filter, train, play on what was held out; in rounds"
    sub = ways.add_parser("filtered-bc", help=purpose, description=purpose, epilog=parser.epilog)
    sub.add_argument("config", metavar="CONFIG", help="what to do: a TOML or JSON file (docs/filtered-bc.md)")
    sub.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="folder to write to; a study is taken up where it ended"
    )
    sub.add_argument("--seeds", default="0", metavar="0,1,2", help="training seeds, each a study of its own (default 0)")
    sub.add_argument("--tables-only", action="store_true", help="train nothing: the tables of what is there")
    sub.add_argument("--budget-usd", metavar="X", help="US dollars for all models of the study together: no call beyond")
    sub.add_argument("--json", action="store_true", help="print the figures as JSON on stdout")


def run(args: argparse.Namespace) -> int:
    """Runs the study; 0, 3 when an arm had nothing to learn from, 130 when interrupted."""
    expect_place(args.output, "a study")
    out, study = Path(args.output), read_study(Path(args.config))
    seeds = numbers(args.seeds, "--seeds")
    if not args.tables_only:
        try:
            with _shown() as audience, run_budget(args, folder=out):
                world = Rollouts(study)
                open_base(study.training_of(0))  # a model that cannot be trained is told of before hours of play
                run_study(study, world, out, seeds, audience)
        except KeyboardInterrupt:
            print("\nstopped; the same command takes up where this study ended", file=sys.stderr)
            return 130
    elif not (out / STUDY).is_file():
        raise UsageError(f"{out}: holds no study yet")
    elif not (out / BASE / "evaluation" / PLAYED).is_file():
        raise UsageError(f"{out}: the untrained policy's evaluation is not finished, and there is no table without it")
    results = write_results(out)
    print(json.dumps(msgspec.to_builtins(results)) if args.json else results_text(results))
    print(f"-> {out / TABLES}, {out / RESULTS}, {out / BY_ROUND}", file=sys.stderr)
    return 3 if any(judge["ended"] for judge in results.judges) else 0


class Rollouts:
    """Plays as `prill rollout` does: the tables of episodes hold its options, and any environment and policy will do.

    The policy has to be one that can be taught, and to have an option `adapter`, or to ask a model that has one (`local:DIR`,
    `vllm:MODEL`). Attempts may be another policy's (`policy = "scripted"`): then it learns from those, and no later round plays
    them again. Raises UsageError.
    """

    def __init__(self, study: Study) -> None:
        options = dict(study.policy)
        self._name = str(options.pop("name", ""))
        if not self._name:
            raise UsageError("policy.name is missing: name the policy")
        maker = POLICIES.maker(self._name)
        own, model = options_of(maker), options.get("model")
        asked = set(model_options(model)) - own.keys() if asks_a_model(maker) else set()
        if "adapter" not in own and "adapter" not in asked:
            what = f"asks {model}, which takes no adapter" if asks_a_model(maker) and model else "has no option `adapter`"
            raise UsageError(
                f"the policy {self._name} {what}: it cannot play what was trained; a policy that asks a model can with "
                "local:DIR or vllm:MODEL"
            )
        self._options = options
        self._of_model = asked
        policy = make_policy(self._name, **options)
        if not isinstance(policy, Demonstrator):
            raise UsageError(f"the policy {self._name} cannot be taught: it has no demonstrate(trajectory, index)")
        self._teacher = policy
        if "policy" in study.evaluation or "policy" in study.episodes:
            raise UsageError("evaluation.policy: only attempts may be another policy's")
        if study.rounds > 1 and all("policy" in kind for kind in study.attempts):
            raise UsageError(
                "rounds: all attempts are another policy's, so a later round has nothing new to learn from; set it to 1, "
                "or add attempts of the policy itself"
            )
        for name, table in (*(("attempts", kind) for kind in study.attempts), ("evaluation", study.evaluation)):
            try:
                self._arguments(Path(name), {**study.episodes, **table}, None)
            except UsageError as error:
                raise UsageError(f"episodes and {name}: {error}") from None

    def teacher(self) -> Demonstrator:
        """The policy without an adapter: what it asks does not hang on it."""
        return self._teacher

    def play(self, out: Path, episodes: Table, adapter: Path | None, earlier: int) -> None:
        """Records the episodes; those that broke off are played once more."""
        if earlier and "policy" in episodes:
            return  # it has learnt nothing since, and would do the same again
        recorded = play(self._arguments(out, episodes, adapter, earlier))
        if (recorded.broken or recorded.lost) and recorded.budget is None:
            recorded = play(self._arguments(out, episodes, adapter, earlier))
        if recorded.budget is not None:
            raise UsageError(f"{out}: {recorded.budget}", parameters=("budget_usd",))

    def _arguments(self, out: Path, episodes: Table, adapter: Path | None, earlier: int = 0) -> argparse.Namespace:
        """Those of `prill rollout`. Attempts are counted on from those of earlier rounds: each draws otherwise."""
        episodes = dict(episodes)
        environment, player = episodes.pop("environment", None), episodes.pop("policy", None)
        if not isinstance(environment, str):
            raise UsageError("episodes.environment is missing: name the environment")
        policy = {**self._options, **({} if adapter is None else {"adapter": str(adapter.resolve())})}
        words = [environment, "--output", str(out), "--policy", player or self._name, "--retry-broken"]
        if player is not None:
            policy = {}
        if (model := policy.pop("model", None)) is not None:
            words += ["--model", str(model)]
        for key, value in policy.items():
            whose = "model" if key in self._of_model else "policy"
            words += ["--set", f"{whose}.{key}={value if isinstance(value, str) else json.dumps(value)}"]
        for key, value in episodes.items():
            words += list(_flag(key, value))
        args = arguments(words)
        args.first_play = earlier * args.plays
        return args


def _flag(key: str, value: Any) -> Iterator[str]:
    """An option of the command for a key and a value of a table."""
    flag = f"--{key.replace('_', '-')}"
    if key == "set":  # as often as needed
        for one in value if isinstance(value, list) else [value]:
            yield from (flag, str(one))
    elif value is True:
        yield flag
    elif isinstance(value, list):
        yield from (flag, ",".join(map(str, value)))
    elif value is not False:
        yield from (flag, str(value))


@contextmanager
def _shown() -> Iterator[Audience]:
    """Stages in words, and a bar for what takes long, on standard error."""
    from prill.commands.bars import Bar
    from prill.refine.training.trainer import Progress
    from prill.refine.training.weights import silence_libraries

    bars: dict[str, tqdm[NoReturn]] = {}

    def bar_of(name: str, total: int | None) -> tqdm[NoReturn]:
        if name not in bars:
            close()
            bars[name] = Bar(total=total, desc=name, dynamic_ncols=True, file=sys.stderr, delay=0.5)
        return bars[name]

    def close() -> None:
        for bar in bars.values():
            bar.close()
        bars.clear()

    def say(words: str) -> None:
        close()
        print(words, file=sys.stderr)

    def judged(tally: Tally) -> None:
        bar = bar_of("judging", None)
        bar.update(tally.made + tally.skipped - bar.n)

    def read(phase: str, done: int, total: int) -> None:
        bar = bar_of(phase, total)
        bar.update(done - bar.n)

    def trained(now: Progress) -> None:
        bar = bar_of("training", now.steps)
        bar.set_postfix_str("" if now.loss is None else f"loss {now.loss:.3f}", refresh=False)
        bar.update(now.step - bar.n)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what goes wrong is an error
        silence_libraries()
        try:
            yield Audience(say, judged, read, trained)
        finally:
            close()
