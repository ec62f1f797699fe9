"""Which of WebArena-Infinity's tasks a run plays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prill.emulators.settings import Playing
from prill.emulators.webarena_infinity.config import WebArenaInfinityConfig
from prill.errors import UsageError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for app in ("mail", "wiki"):
        folder = tmp_path / "apps" / app
        (folder / "real-tasks").mkdir(parents=True)
        rows = []
        for letter, difficulty in (("e", "easy"), ("m", "medium")):
            for number in range(20):
                name = f"task_{letter}{number}"
                verify = f"real-tasks/{name}.py"
                (folder / verify).write_text("")
                row = {"id": name, "difficulty": difficulty, "instruction": name, "verify": verify}
                rows.append(row)
        (folder / "real-tasks.json").write_text(json.dumps(rows))
    return tmp_path


def chosen(root: Path, **options: Any) -> list[str]:
    setting = WebArenaInfinityConfig(root=root, **options).setting(Playing(images=root))
    return list(setting.tasks)


def test_tasks_are_chosen_by_application_pattern_and_difficulty(root: Path) -> None:
    assert len(chosen(root)) == 80
    assert sorted(chosen(root, apps="wiki", tasks="task_e1,*/task_m2/real")) == [
        "wiki/task_e1/real",
        "wiki/task_m2/real",
    ]
    easy = chosen(root, tasks="task_*", difficulty="easy")
    assert len(easy) == 40 and all("/task_e" in name for name in easy)


def test_a_seed_fixes_order_and_split(root: Path) -> None:
    """Neither hangs on the other tasks that are chosen."""
    everything, train = chosen(root), chosen(root, split="train")
    test = chosen(root, split="test")
    assert sorted([*train, *test]) == sorted(everything) and 8 <= len(test) <= 24
    mail = chosen(root, apps="mail", split="test")
    assert mail == [name for name in test if name.startswith("mail/")]
    assert [name for name in everything if name.startswith("mail/")] != everything[:40], "mixed"
    assert everything == chosen(root) != chosen(root, task_seed=1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"apps": "male"}, "apps: unknown app male; expected one of 2, for example mail, wiki"),
        ({"tasks": "task_x*"}, "tasks: no task matches 'task_x\\*'; one is mail/task_e0/real"),
        ({"difficulty": "hard"}, "no task is left"),
        ({"set": "function"}, "root .*: no apps/\\*/function-tasks.json; give the folder of"),
    ],
)
def test_what_selects_nothing_is_refused(root: Path, options: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        chosen(root, **options)
