"""`prill reflexion` on a phone, and `prill devices --environment webarena` on real sites."""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.emulators.shop import Shop, shop_configs
from prill.io.retries import read_results
from prill.types import LabelRecord
from prill.ui.view.label_log import LabelLog
from tests.support.android import FakeAdb
from tests.support.commands.command import Prill

TAPPER = """
from prill.types import Action, EvaluatorInfo, Step, Verdict


class Tapper:
    def __init__(self):
        self.lessons = []

    def reset(self, task):
        self.left = ["Settings", "Bluetooth"][: 1 + len(self.lessons)]

    async def act(self, observation):
        if not self.left:
            return Step(observation, Action("stop", "stop", value="It is on."))
        word = self.left.pop(0)
        line = next(line.strip() for line in observation.text.splitlines() if word in line)
        return Step(observation, Action("click", f"click {line}", target=line))

    async def reflect(self, trajectory, verdict):
        return f"Seen: {verdict.reason}. Turn it on."


class Watcher:
    info = EvaluatorInfo("watcher", "1")

    def screenshots(self, trajectory):
        return ()

    async def __call__(self, trajectory):
        on = "Bluetooth' checked: true" in trajectory.steps[-1].observation.text
        return Verdict(id=trajectory.id, success=on, reason="it is on" if on else "it is off", evaluator=self.info)
"""  # noqa: E501


def test_phone_is_tried_again_with_a_lesson(
    prill: Prill, tmp_path: Path, fake_adb: FakeAdb
) -> None:
    (tmp_path / "tapper.py").write_text(TAPPER)
    words = (
        "android",
        "--goal",
        "Turn on Bluetooth",
        "--adb-port",
        fake_adb.port,
        "--policy",
        "tapper.py:Tapper",
    )
    done = prill("reflexion", *words, "--judge", "tapper.py:Watcher", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert fake_adb.phone().screen.toggles["Bluetooth"]
    (task,) = read_results("out").tasks
    assert [(a.status, a.lesson) for a in task.attempts] == [
        ("failure", "Seen: it is off. Turn it on."),
        ("success", None),
    ]
    assert "truth unknown: 1" in done.stdout, "no oracle looks at phones"
    first = done.stderr.splitlines()[0]
    assert (
        first.startswith("prill reflexion: android has no oracle")
        and "prill annotate out/" in first
    )
    with LabelLog("out/labels.jsonl", "ann") as log:  # as prill annotate does
        for attempt, success in zip(task.attempts, (False, True), strict=True):
            log.put(LabelRecord(id=attempt.id, success=success, source="human", annotator="ann"))
    again = prill("reflexion", *words, "--judge", "tapper.py:Watcher", "-o", "out")
    assert again.returncode == 0 and "truth unknown: 1" not in again.stdout, again.stderr
    assert [attempt.truth for attempt in read_results("out").tasks[0].attempts] == [False, True]


@pytest.mark.usefixtures("chromium")
def test_check_tries_what_sites_need(prill: Prill, tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_bytes(shop_configs())
    command = ("devices", "--environment", "webarena", "--configs", "tasks.json")
    with Shop() as shop:
        whole = prill(*command, "--reset", shop.reset_url, **shop.environ)
        assert whole.returncode == 3, "the shop has no map"
        said = {line[8:].partition(":")[0]: line[:8].strip() for line in whole.stdout.splitlines()}
        logins = {f"login at {name.lower()}": "ok" for name in shop.environ}
        none = {f"address of {name}": "missing" for name in ("map", "wikipedia", "homepage")}
        assert said == {**logins, **none, "reset": "ok", "oracle of task 1005": "ok"}
        wrong = prill(
            *command,
            **{**shop.environ, "REDDIT_PASSWORD": "S3CRET", "GITLAB": "http://127.0.0.1:9"},
        )
        # a command that resets what it is told, as the guide writes it
        selective = """test -n "$PRILL_SITES"; echo "$PRILL_TASK,$PRILL_SITES" >>told"""
        prill(*command, "--reset", selective, "--reset-timeout", "5", **shop.environ)
        assert (tmp_path / "told").read_text().splitlines()[0] == (
            ",gitlab,reddit,shopping,shopping_admin"
        )
    assert "missing login at reddit: " in wrong.stdout and "rejects the account" in wrong.stdout
    assert "missing login at gitlab: " in wrong.stdout
    assert "give one with reset" in wrong.stdout and "S3CRET" not in wrong.stdout + wrong.stderr
