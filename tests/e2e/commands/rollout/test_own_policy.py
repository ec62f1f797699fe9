"""`prill rollout miniwob` in a browser, with the example of a policy of the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.cli import main
from tests.unit.commands.rollout.test_own import EXAMPLES, labels


@pytest.mark.usefixtures("chromium")
def test_example_policy_plays_miniwob(tmp_path: Path) -> None:
    policy = f"{EXAMPLES / 'own_policy.py'}:ClickNamed"
    words = ("--tasks", "click-button,click-link", "--seeds", "0,1", "--policy", policy)
    assert main(["rollout", "miniwob", *words, "-o", str(tmp_path / "buttons")]) == 0
    assert (
        main(["rollout", "miniwob", *words, "--policy.role", "link", "-o", str(tmp_path / "links")])
        == 0
    )
    successes = {
        name: [
            label.success for label in sorted(labels(tmp_path / name), key=lambda label: label.id)
        ]
        for name in ("buttons", "links")
    }
    assert successes == {"buttons": [True, True, False, False], "links": [False, False, True, True]}
