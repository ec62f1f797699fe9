"""Episodes keep their ids: a folder that was recorded with the same settings before is taken up,
and not played again.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
from pathlib import Path

import pytest

import prill
from prill.episodes import RolloutConfig
from prill.episodes.run import rollout_session
from tests.support.commands.as_config import config
from tests.support.paths import ROOT

MODEL = "--model m --model.base-url http://127.0.0.1:1"
REACT = f"--policy react {MODEL}"
# What folders hold that were recorded when options had other words. SteP plays otherwise since it
# reads more forms of replies and may ask again (`repair`).
IDS = {
    "miniwob --tasks click-link --seeds 0-1": ["miniwob-42579c0d02", "miniwob-754d31c172"],
    f"miniwob --tasks click-link {REACT} --no-policy.reasoning --policy.max-tokens 99 "
    "--temperature 1.5 --policy.attempts 2 --boxes --environment.timeout 60": [
        "click-link-s0-a0-462025fa"
    ],
    f"webarena --shop --tasks 1002 {REACT} --whole-page --viewport 800x600 --pause 2": [
        "1002-s0-a0-30cdcd64"
    ],
    f"browsergym --tasks miniwob.click-test {REACT} --slow-mo 5": [
        "miniwob.click-test-s0-a0-41d6c9a4"
    ],
    (
        "examples/own_environment.py:Counter --goal 'Count to 3' --policy "
        "examples/own_policy.py:Add --start 2"
    ): ["goal-25124c9e-s0-a0-d99b6f36"],
}
WEB = ("miniwob", "webarena", "airline", "web", "browsergym")


async def ids(asked: RolloutConfig) -> list[str]:
    async with rollout_session(asked) as made:
        return [made.id(row) for row in made.rows]


@pytest.mark.parametrize("words", IDS)
async def test_ids_are_those_of_earlier_folders(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words.startswith(WEB) and not all(
        importlib.util.find_spec(name) for name in ("playwright", "miniwob")
    ):
        pytest.skip("not installed: prill[web]")
    for name in [name for name in os.environ if name.startswith("WA_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(ROOT)
    asked = config(*shlex.split(words), "-o", str(tmp_path / "out"))
    assert await ids(asked) == IDS[words]
    assert await ids(RolloutConfig.read(asked.table())) == IDS[words], "a table says the same"


async def test_defaults_that_are_said_change_no_id(tmp_path: Path) -> None:
    """However an environment's option is said (flag, text, keyword), and also where it says what
    holds anyway.
    """
    plain = {"environment": {"name": "miniwob", "tasks": "click-link"}, "output": tmp_path}
    said = {
        "environment": prill.MiniWobConfig(
            tasks=["click-link"], settle=0.5, boxes=False, timeout=30
        ),
        "output": tmp_path,
    }
    other = {
        "environment": prill.MiniWobConfig(tasks=["click-link"], timeout=60),
        "output": tmp_path,
    }
    first, second, third = [await ids(RolloutConfig.read(table)) for table in (plain, said, other)]
    assert first == second != third
