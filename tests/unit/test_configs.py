"""A run is a value: flags, a TOML file and Python make the same configuration of each command."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
import threading
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import prill
import prill.papers
import prill.papers.bench
from prill.cli.commands import COMMANDS
from prill.cli.derive import derive
from prill.cli.layout import FlagLayout, Switches
from prill.config.registry import load_object, spec_type
from prill.config.values import Config, config_options
from prill.errors import UsageError
from prill.lazy import homes
from tests.support.paths import ROOT

# A block is a TOML file; its first line is the same as a command line, in which FILE.toml has what
# no flag gives.
BLOCKS = (ROOT / "tests/unit/configs.toml").read_text(encoding="utf-8").strip().split("\n\n")
NAMES = sorted(COMMANDS, key=len, reverse=True)


def read(name: str, argv: list[str]) -> tuple[Config, Switches]:
    """The configuration that a command line gives."""
    command = COMMANDS[name]
    derived, rest = derive(
        load_object(command.config),
        argv,
        command.layout,
        prog=f"prill {name}",
        dry_run=bool(command.plan),
    )
    return derived.read(rest)


def command_line(block: str) -> tuple[str, list[str]]:
    """The command of a block, and its flags."""
    line = block.partition("\n")[0].removeprefix("# ")
    name = next(name for name in NAMES if line.startswith(f"{name} "))
    return name, line.removeprefix(name).split()


def keywords(table: Any) -> Any:
    """A table as Python writes it."""
    if isinstance(table, dict):
        return {key.replace("-", "_"): keywords(value) for key, value in table.items()}
    return [keywords(one) for one in table] if isinstance(table, list) else table


def in_python(config: Any, table: dict[str, Any]) -> Config:
    """The configuration from Python's keywords; those of a part `spec` make that part."""
    if part := spec_type(config):
        theirs = {name: table.pop(name) for name in config_options(part) if name in table}
        table["spec"] = part(**theirs)
    made: Config = config(**table)
    return made


def test_every_command_is_compared() -> None:
    assert {command_line(block)[0] for block in BLOCKS} == set(COMMANDS)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: command_line(block)[0])
def test_three_ways_make_one_configuration(block: str, tmp_path: Path) -> None:
    name, flags = command_line(block)
    (tmp_path / "run.toml").write_text(block)
    python = in_python(load_object(COMMANDS[name].config), keywords(tomllib.loads(block)))
    (tmp_path / "FILE.toml").write_text(
        "\n".join(re.findall(r"^.+ = [\[{].+$", block, re.MULTILINE))
    )
    flags = [str(tmp_path / "FILE.toml") if flag == "FILE.toml" else flag for flag in flags]
    assert read(name, flags)[0] == python
    assert read(name, [str(tmp_path / "run.toml")])[0] == python
    assert type(python).load(tmp_path / "run.toml") == python
    assert type(python).read(python.table()) == python
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(python, next(iter(config_options(type(python)))), "x")


def test_parts_and_paths_are_objects_or_their_text() -> None:
    plain = prill.ReflexionConfig(
        spec={
            "environment": {"name": "miniwob", "tasks": "click-link"},
            "model": {"name": "m", "base_url": "http://x"},
        },
        judge={"name": "vlm", "frames": 2},
        retries={"attempts": 3},
        output="out",
    )
    assert plain == prill.ReflexionConfig(
        spec=prill.EpisodesConfig(
            environment=prill.MiniWobConfig(tasks=["click-link"]),
            model=prill.ModelConfig("m", base_url="http://x"),
        ),
        judge=prill.JudgeConfig("vlm", frames=2),
        retries=prill.RetrySpec(attempts=3),
        output=Path("out"),
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_short_and_starts_with_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from prill.cli import main

    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    shown = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0
    assert len(shown) < 60
    assert sum(line.strip().startswith(f"prill {name}") for line in shown[:8]) == 3


def test_fields_are_described() -> None:
    configs = {load_object(command.config) for command in COMMANDS.values()}
    assert not [
        f"{config.__name__}.{option.name}"
        for config in configs
        for option in config_options(config).values()
        if not option.description
    ]


def test_flags_come_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        "trajectories = ['t.jsonl']\noutput = 'v.jsonl'\njudge = {name = 'vlm', frames = 2}"
    )
    config, _ = read("score", [str(path), "--judge.frames", "5", "--limit", "9"])
    assert config == prill.ScoreConfig(
        trajectories=["t.jsonl"],
        output="v.jsonl",
        judge=prill.JudgeConfig("vlm", frames=5),
        limit=9,
    )
    other, _ = read("score", [str(path), "--judge", "self-report"])
    assert other.table()["judge"] == {"name": "self-report"}


def test_what_a_part_makes_of_a_word_is_left_to_it(tmp_path: Path) -> None:
    config, _ = read(
        "score",
        [
            "t.jsonl",
            "-o",
            "v.jsonl",
            "--judge",
            "vlm",
            "--model",
            "m",
            "--model.cache",
            str(tmp_path / "kept"),
        ],
    )
    assert isinstance(config, prill.ScoreConfig)
    assert config.model == prill.ModelConfig("m", cache=str(tmp_path / "kept"))
    assert isinstance(config.model, prill.ModelConfig) and prill.model(config.model).name == "m"


@pytest.mark.parametrize(
    ("argv", "trajectories"),
    [
        ("-o v a --judge vlm b", ("a", "b")),
        ("a --judge vlm --limit 1 b -o v", ("a", "b")),
        ("-o v --judge vlm -- -a b", ("-a", "b")),
        ("- -o v --judge vlm", ("-",)),
    ],
)
def test_words_may_stand_among_flags(argv: str, trajectories: tuple[str, ...]) -> None:
    config, _ = read("score", argv.split())
    assert isinstance(config, prill.ScoreConfig)
    assert config.trajectories == trajectories


@dataclass(frozen=True, kw_only=True)
class Odd(Config):
    """A list, a word after it, a list of names, a list of paths."""

    runs: Sequence[str | Path]
    labels: str | Path
    names: Sequence[str] = ()
    more: Sequence[str | Path] = ()


@pytest.mark.parametrize(
    ("argv", "table"),
    [
        ("a b c", {"runs": ["a", "b"], "labels": "c"}),
        ("--names x,y a --names z b", {"runs": ["a"], "labels": "b", "names": ["x", "y", "z"]}),
        ("a b --more c,d e", {"runs": ["a"], "labels": "b", "more": ["c,d", "e"]}),
    ],
)
def test_last_word_after_a_list_is_the_next_field(argv: str, table: dict[str, Any]) -> None:
    derived, rest = derive(Odd, argv.split(), FlagLayout(("runs", "labels")), prog="prill odd")
    assert derived.read(rest)[0] == Odd.read(table)


def test_words_without_a_place_are_refused() -> None:
    derived, rest = derive(Odd, ["a", "b"], FlagLayout(("labels",)), prog="prill odd")
    with pytest.raises(UsageError, match="b: unexpected arguments"):
        derived.read(rest)


@pytest.mark.parametrize(
    ("argv", "option", "hint"),
    [
        ("--judge vlm s.toml", "s.toml", "first"),
        ("--judgee vlm", "--judgee", "'--judge'"),
        ("--judge vlm --judge.frame 2", "--judge.frame", "'--judge.frames'"),
        ("--judge vlm --judge.frames two", "--judge.frames", "`int`"),
        ("--judge vlm --judge.rubrics 2", "--judge.rubrics", "judges with this option: rubric"),
        (
            "--judge modular --judge.captioner.model m",
            "--judge.captioner.model",
            "--judge.captioner is missing",
        ),
        (
            "--judge modular --judge.captioner text --judge.captioner.max-tokens 2",
            "--judge.captioner.max-tokens",
            "with this option: vlm",
        ),
        ("--judge vlm --frames 2", "--frames", "write --judge.frames"),
        ("--judge vlm --rubrics 2", "--rubrics", "judges with this option: rubric"),
        (
            "--judge vlm --model.reasoning-effort lots",
            "--model.reasoning-effort",
            "one of none, minimal",
        ),
        ("--judge vlm --judge.max_tokens 2", "--judge.max_tokens", "'--judge.max-tokens'"),
        ("--judge vlm --model m --budget_usd=2", "--budget_usd", "'--budget-usd'"),
        ("--judge vlm --model m --model.top-q 2", "--model.top-q", "'--model.top-p'"),
        ("--judge webjudge --top-k 2", "--top-k", "--judge.top-k or --model.top-k"),
        ("--judge= --judge.captioner text", "--judge", "name of a judge"),
        ("", "--judge", "missing"),
    ],
)
def test_wrong_flags_are_named(argv: str, option: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"(?s)^(.*; )?{re.escape(option)}.*{re.escape(hint)}"):
        read("score", ["t.jsonl", "-o", "v.jsonl", *argv.split()])


@pytest.mark.parametrize(
    ("table", "key", "hint"),
    [
        ("limits = 3", "limits", "'limit'"),
        ("limit = 0", "limit", ">= 1"),
        ("judge = {nam = 'vlm'}", "judge.name", "nam"),
    ],
)
def test_wrong_keys_are_named_with_their_file(
    table: str, key: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f"trajectories = ['t.jsonl']\noutput = 'v.jsonl'\n{table}\n")
    argv = [str(path), *(() if "judge" in table else ("--judge", "vlm"))]
    with pytest.raises(UsageError, match=f"^{re.escape(f'{path}: {key}')}.*{re.escape(hint)}"):
        read("score", argv)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"output": 5}, "output: .*`str`"),
        ({"trajectories": 5}, "trajectories: .*`array`"),
        ({"trajectories": ["t.jsonl", None]}, r"trajectories: .*`str`.*\[1\]"),
        ({"transcripts": 1.5}, "transcripts: .*`bool | str`"),
    ],
)
def test_paths_are_checked(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        prill.ScoreConfig(
            **{"trajectories": ["t.jsonl"], "output": "v.jsonl", "judge": "vlm", **given}
        )


def test_a_first_word_alone_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    from prill.cli import main

    assert main(["train", "--help"]) == 0
    listed = capsys.readouterr().out
    assert all(
        f"  {line} " in listed
        for line in (f"prill {name}" for name in COMMANDS if name.startswith("train "))
    )
    assert main(["train"]) == 2
    assert "name a subcommand: policy, captioner, judge, ranker, planner" in capsys.readouterr().err
    assert main(["train", "plicy", "rows.jsonl"]) == 2
    assert "unknown 'plicy' (did you mean 'policy'?)" in capsys.readouterr().err


def test_options_without_a_name_are_those_of_the_default() -> None:
    config, _ = read("caption", ["t.jsonl", "-o", "c.jsonl", "--max-tokens", "9"])
    assert isinstance(config, prill.CaptionConfig) and config.captioner == prill.CaptionerConfig(
        "vlm", max_tokens=9
    )
    played, _ = read(
        "reflexion",
        ["miniwob", "--tasks", "a", "-o", "o", "--judge", "oracle", "--policy.max-tokens", "9"],
    )
    assert isinstance(played, prill.ReflexionConfig) and played.policy == prill.PolicyConfig(
        "react", max_tokens=9
    )
    with pytest.raises(
        UsageError, match="captioner 'text' has no such option; captioners with this option: vlm"
    ):
        read(
            "caption",
            ["t.jsonl", "-o", "c.jsonl", "--captioner", "text", "--max-tokens", "9"],
        )


def test_options_of_parts_may_be_paths() -> None:
    """They are the same as their text, whether the part is described or made at once."""
    labels = ROOT / "datasets/samples/miniwob/labels.jsonl"
    described = prill.JudgeConfig("noisy", labels=labels)
    assert described == prill.JudgeConfig("noisy", labels=str(labels))
    assert described.table() == {"name": "noisy", "labels": str(labels)}
    infos = [prill.judge("noisy", labels=file).info for file in (labels, str(labels))]
    assert infos == [prill.judge(described).info] * 2


def test_every_run_has_both_forms() -> None:
    """`prill.x(config)` and `await prill.x_async(config)`, and so in `prill.papers` and
    `prill.papers.bench`.
    """
    for face in (prill, prill.papers, prill.papers.bench):
        functions = {name: getattr(face, name) for name in homes(face.__name__) if name.islower()}
        runs = {name for name, run in functions.items() if hasattr(run, "run_async")}
        assert runs and not [
            name
            for name, run in functions.items()
            if next(iter(inspect.signature(run).parameters), "") == "config"
            and name[:5] not in ("plan_", "serve")
        ], "a run without its other form"
        for name in runs:
            assert not inspect.iscoroutinefunction(getattr(face, name))
            assert inspect.iscoroutinefunction(getattr(face, f"{name}_async"))


def test_a_run_that_computes_is_awaited_in_a_thread(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    prill.write_trajectories(
        path,
        [prill.Trajectory(id="a", task=prill.Task(goal="g"), steps=(), final=prill.Observation())],
    )
    config = prill.CheckConfig(files=[path])
    threads: list[str] = []

    async def both() -> tuple[object, object]:
        awaited = prill.check_async(
            config, progress=lambda: threads.append(threading.current_thread().name)
        )
        return await awaited, prill.check(config)

    awaited, plain = asyncio.run(both())
    assert str(awaited) == str(plain)
    assert threads and threading.main_thread().name not in threads
