"""The settings of the papers: in force where a run leaves them open, and told."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from prill.config.values import config_options
from prill.emulators.settings import EnvironmentConfig
from prill.episodes.episodes import EpisodesConfig, RolloutSession, session
from prill.papers.replies import read_toml
from prill.testing import ScriptedModel
from tests.support.chromium import need_chromium

PAPERS = ("step", "structured_reflection", "synapse")
MODEL = ScriptedModel([])


async def made(tmp_path: Path, environment: Any, policy: str, **given: Any) -> RolloutSession:
    need_chromium("miniwob")
    config = EpisodesConfig(environment=environment, model=MODEL, **given)
    async with session(config, tmp_path, policy=policy, planned=True) as open_session:
        return open_session


@pytest.mark.parametrize("paper", PAPERS)
def test_settings_are_fields_of_run_or_environment(paper: str) -> None:
    for name, settings in read_toml(f"prill.papers.{paper}", "settings.toml").items():
        environment = EnvironmentConfig.chosen(name)
        own = {field.name for field in fields(EpisodesConfig)} | config_options(environment).keys()
        assert settings.keys() <= own, (paper, name)
        environment.read(
            {
                "name": name,
                **{
                    key: value
                    for key, value in settings.items()
                    if key in config_options(environment)
                },
            }
        )


@pytest.mark.parametrize(
    ("environment", "policy", "held"),
    [
        (
            {"name": "miniwob", "tasks": "click-link"},
            "step",
            {"early_stop": False, "max_steps": 31},
        ),
        (
            {"name": "webarena", "shop": True, "tasks": "1001"},
            "step",
            {"early_stop": False, "max_steps": 21, "viewport": "1920x1080"},
        ),
        (
            {"name": "miniwob", "tasks": "click-link"},
            "structured-reflection",
            {"early_stop": False, "max_steps": 30, "settle": 0.5, "boxes": True, "stage_steps": 30},
        ),
        (
            {"name": "miniwob", "tasks": "click-link"},
            "synapse",
            {"early_stop": False, "max_steps": 300},
        ),
        (
            {"name": "miniwob", "tasks": "click-link"},
            "react",
            {"early_stop": True, "max_steps": 30},
        ),
    ],
)
async def test_an_agent_plays_as_its_paper_does(
    tmp_path: Path, environment: Any, policy: str, held: dict[str, Any]
) -> None:
    run = await made(tmp_path, environment, policy)
    assert run.settings == held
    assert (run.early_stop is not None, run.max_steps) == (held["early_stop"], held["max_steps"])


async def test_what_a_run_says_wins(tmp_path: Path) -> None:
    place = {"name": "miniwob", "tasks": "click-link", "boxes": False}
    run = await made(tmp_path, place, "structured-reflection", early_stop=True, max_steps=7)
    assert (run.settings["boxes"], run.settings["early_stop"], run.max_steps) == (False, True, 7)
    assert run.early_stop is not None
    place = {"name": "webarena", "shop": True, "tasks": "1001", "viewport": "800x600"}
    assert (await made(tmp_path, place, "step")).settings["viewport"] == "800x600"
