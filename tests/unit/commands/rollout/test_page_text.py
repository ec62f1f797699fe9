"""`prill rollout miniwob` shows a page as its policy reads it, and tells runs apart by what the
policy really draws with.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.episodes import RolloutSession, session
from tests.support.commands.as_config import config


async def made(*words: str) -> RolloutSession:
    """What the words ask to be played, as it is made before anything is."""
    model = (
        () if "scripted" in words else ("--model", "m", "--model.base-url", "http://127.0.0.1:1")
    )
    asked = config("miniwob", "--tasks", "click-link", "--policy", *words, *model, "-o", "out")
    async with session(asked.spec, "out", policy=asked.policy) as whole:
        return whole


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("step",), "html"),
        (("structured-reflection",), "html"),
        (("synapse",), "html"),
        (("step", "--text", "lines"), "lines"),
        (("react",), "lines"),
        (("scripted",), "lines"),
    ],
)
async def test_a_policy_says_what_it_reads(
    words: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (await made(*words)).setting.fingerprint["text"] == text
