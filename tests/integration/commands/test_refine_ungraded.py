"""Where nobody grades, as on phones, a study says so before anything is played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prill.cli import main

PLACE = """
from prill.types import Observation

class Place:
    platform = "android"

    async def reset(self, task):
        raise AssertionError("nothing is to be played")

    async def step(self, action):
        raise AssertionError

    async def close(self):
        pass
"""
STUDY = """
[policy]
name = "react"
model = "local:{here}/model"

[training]
model = "embedded"

[episodes]
environment = "{here}/place.py:Place"
goal = "Turn it on"

[attempts]

[evaluation]
{evaluation}

[[arms]]
name = "filtered"
judge = "{judge}"
"""


@pytest.fixture
def refine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    (tmp_path / "place.py").write_text(PLACE)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")

    def run(evaluation: str = "", judge: str = "self-report") -> tuple[int, str]:
        (tmp_path / "study.toml").write_text(
            STUDY.format(here=tmp_path, evaluation=evaluation, judge=judge)
        )
        code = main(
            ["filtered-bc", str(tmp_path / "study.toml"), "-o", str(tmp_path / "out"), "--dry-run"]
        )
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_absent_oracle_is_told_at_once(refine: Any) -> None:
    code, said = refine()
    assert code == 2 and "has no oracle, so there would be no results" in said
    assert "judge = …" in said and "annotated = true" in said and "tables_only" in said


@pytest.mark.parametrize("judge", ["oracle", "noisy"])
def test_arm_that_needs_the_oracle_is_refused(refine: Any, judge: str) -> None:
    """Its verdicts would all be unscored, after hours of play."""
    code, said = refine("annotated = true", judge)
    assert code == 2 and "arms[0].judge" in said and "no oracle labels the attempts here" in said
