"""`prill rollout airline`: a desk in this process by its name, played by the scripted policy, with
progress in its labels.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.episodes import rollout
from prill.errors import UsageError
from tests.support.commands.as_config import config


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--tasks", "fly"), "unknown task fly; expected one of 5, for example find-booking"),
        (("--tasks", "all", "--seeds", "18-20"), "seeds: each task has the scenarios 0 to 19"),
        (("--tasks", "all", "--behaviour", "wrong-target"), "at the airline there is solve"),
    ],
)
def test_what_cannot_be_played_is_said(
    words: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    given = (*words, "--policy", "scripted")
    with pytest.raises(UsageError, match=problem):
        rollout(config("airline", "-o", str(tmp_path / "out"), *given))
