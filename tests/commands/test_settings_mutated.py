"""Every key of every settings file that is shown: another type, NaN and a neighbour that nobody
knows are refused at once.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from prill.errors import UsageError
from prill.evaluators.registry import make_judge
from prill.refine.filtered_bc import Study
from prill.refine.rewards.reward import make_reward
from prill.runs.filter import FilterConfig, make_teacher
from prill.runs.filtered_bc import prepare
from prill.runs.plan import in_file
from prill.runs.serve import ServeConfig, make_served_reward

from .conftest import Prill

ROOT = Path(__file__).resolve().parents[2]
SHOWN: list[tuple[str, str]] = [
    ("study", "examples/filtered_bc/short.toml"),
    ("study", "examples/filtered_bc/miniwob.toml"),
    ("study", "docs/how-to/filtered-bc.md:1"),
    ("study", "docs/how-to/screen-models.md:0"),
    ("filter", "docs/how-to/filtered-bc.md:0"),
    ("judge", "examples/own.toml"),
    ("judge", "examples/cascade.toml"),
    ("judge", "docs/how-to/captions.md:0"),
    ("reward", "docs/how-to/rewards.md:0"),
    ("service", "examples/reward_service/service.toml"),
    ("service", "docs/how-to/reward-service.md:0"),
    ("retries", "docs/how-to/reflexion.md:0"),
]


def shown(place: str) -> dict[str, Any]:
    """The table of a file, or of the TOML block of that number in a document."""
    name, _, number = place.partition(":")
    text = (ROOT / name).read_text(encoding="utf-8")
    return tomllib.loads(
        re.findall(r"^```toml[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[int(number)]
        if number
        else text
    )


def mutations(
    table: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[str, tuple[str | int, ...], Any]]:
    """Each key, and what is put in its place: `key` says which one a message has to name."""
    if isinstance(table, list):
        for index, inner in enumerate(table):
            if isinstance(inner, dict):
                yield from mutations(inner, (*path, index))
        return
    for key, value in table.items():
        here = (*path, key)
        wrong: Any = (
            "maybe"
            if isinstance(value, bool)
            else "many"
            if isinstance(value, int | float)
            else {"a": 1}
        )
        yield key, here, 5 if isinstance(value, dict) else wrong
        yield key, here, float("nan")
        yield f"{key}x", (*path, f"{key}x"), value
        if isinstance(value, dict | list):
            yield from mutations(value, here)


def mutated(table: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """A copy with the value at that place."""
    copy: Any = json.loads(json.dumps(table))
    there = copy
    for key in path[:-1]:
        there = there[key]
    there[path[-1]] = value
    return copy  # type: ignore[no-any-return]


def _study(path: Path) -> None:
    study = Study.load(path)
    with in_file(path):
        prepare(study, path.with_name("out"))


def _service(path: Path) -> None:
    with in_file(path):
        make_served_reward(ServeConfig.load(path))


def _filter(path: Path) -> None:
    with in_file(path):
        make_teacher(FilterConfig.load(path).policy)


CHECKS: dict[str, Callable[[Path], object]] = {
    "study": _study,
    "filter": _filter,
    "judge": lambda path: make_judge(path, defaults={"model": "m"}),
    "reward": make_reward,
    "service": _service,
}


@pytest.mark.parametrize(("kind", "place"), SHOWN)
def test_no_key_of_what_is_shown_takes_anything(
    prill: Prill, tmp_path: Path, kind: str, place: str
) -> None:
    if kind == "study" and (find_spec("miniwob") is None or find_spec("torch") is None):
        pytest.skip("miniwob or torch is not installed")
    for name in ("examples", "datasets"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "runs").mkdir()
    (tmp_path / "models/Qwen3-VL-8B-Instruct").mkdir(parents=True)
    (tmp_path / "models/Qwen3-VL-8B-Instruct/config.json").write_text("{}")
    table = shown(place)
    if place == "examples/cascade.toml":
        # the file of the fitted one is made by another example
        table["judges"][0] = {"name": "self-report"}
    path = tmp_path / "s.json"

    def check(table: dict[str, Any]) -> None:
        path.write_text(json.dumps(table))
        if kind == "retries":
            done = prill("reflexion", "s.json", "--dry-run")
            if done.returncode:
                raise UsageError(done.stderr)
        else:
            CHECKS[kind](path)

    check(table)
    passed, unnamed = [], []
    for key, where, value in mutations(table):
        try:
            check(mutated(table, where, value))
        except UsageError as error:
            if str(key) not in str(error) or "s.json" not in str(error):
                unnamed.append((where, value, str(error)))
        else:
            passed.append((where, value))
    assert not passed and not unnamed, (passed, unnamed)
    assert {file.name for file in tmp_path.iterdir()} <= {
        "examples",
        "datasets",
        "models",
        "runs",
        "s.json",
    }
