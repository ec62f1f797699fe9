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
from prill.emulators.settings import EnvironmentConfig
from prill.runs.rollout import RolloutConfig
from prill.runs.rollout.run import rollout_session
from tests.support.commands.as_config import config
from tests.support.paths import ROOT

MODEL = "--model m --base-url http://127.0.0.1:1"
REACT = f"--policy react {MODEL}"
# What folders hold that were recorded when options had other words. SteP plays otherwise since it
# reads more forms of replies and may ask again (`repair`).
IDS = {
    "miniwob --tasks click-link --seeds 0-1": ["miniwob-42579c0d02", "miniwob-754d31c172"],
    "miniwob --tasks click-link --behaviour wrong-target --settle 1 --hidden": [
        "miniwob-11de7d732d"
    ],
    f"miniwob --tasks click-link {REACT}": ["click-link-s0-a0-a3110465"],
    f"miniwob --tasks click-link {REACT} --no-reasoning --max-tokens 99 --temperature 1.5 "
    "--policy.attempts 2 --boxes --environment.timeout 60": ["click-link-s0-a0-9909b32f"],
    (
        f"miniwob --tasks click-link --policy step {MODEL} --text "
        "lines --max-steps 7 --no-early-stop"
    ): ["click-link-s0-a0-b33d1c8a"],
    (
        f"miniwob --tasks click-link --policy step {MODEL} --temperature 0 --compare-text "
        "--model.top-k 5"
    ): ["click-link-s0-a0-95f40693"],
    "webarena --shop --tasks 1002 --policy scripted --seeds 3": ["webarena-c93a2845f2"],
    f"webarena --shop --tasks 1002 {REACT} --whole-page --viewport 800x600 --pause 2": [
        "1002-s0-a0-ad3d3de7"
    ],
    (
        f"webarena --shop --tasks 1002 {REACT} --oracle fixed --oracle-model j "
        "--environment.max-tokens 1920"
    ): ["1002-s0-a0-6ebab422"],
    "airline --tasks find-booking --policy scripted --seeds 1-2": [
        "airline-2876fe4e3d",
        "airline-764bf73421",
    ],
    f"airline --tasks find-booking {REACT} --no-limited": ["find-booking-s0-a0-67f3bb07"],
    f"web --goal 'Find it' --start-url http://127.0.0.1 {REACT} --navigation-timeout 5.5": [
        "goal-14286fec-s0-a0-4180bf61"
    ],
    f"android --avd X --goal 'Turn on 6G' {REACT} --settle-gap 0 --no-tree": [
        "goal-b69405fc-s0-a0-2ca5e931"
    ],
    (
        "examples/own_environment.py:Counter --goal 'Count to 3' --policy "
        "examples/own_policy.py:Add --environment.start 2"
    ): ["goal-25124c9e-s0-a0-d99b6f36"],
    f"examples/own_environment.py:Counter --goal 'Count to 3' --policy screen {MODEL}": [
        "goal-25124c9e-s0-a0-50f2268f"
    ],
}
WEB = ("miniwob", "webarena", "airline", "web")


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


@pytest.mark.parametrize(
    "name", ["miniwob", "webarena", "airline", "web", "mind2web", "android", "ios"]
)
def test_each_environment_has_its_own_configuration(name: str) -> None:
    made = EnvironmentConfig.read(name)
    assert (type(made), made.name) == (EnvironmentConfig.chosen(name), name)
    assert EnvironmentConfig.read(made.table()) == made
    assert type(made).read({"name": name}) == made
