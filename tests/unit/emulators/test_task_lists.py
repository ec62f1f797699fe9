"""The task lists that come with the package."""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources

import pytest

from prill.emulators.task_source import NAMES, task_list
from prill.errors import UsageError


def test_lists_have_the_published_sizes() -> None:
    assert {name: len(task_list(name)) for name in NAMES} == {
        "android": 120,
        "ios_train": 80,
        "ios_eval": 52,
    }
    assert Counter(task.site for task in task_list("android")) == {
        "general": 40,
        "web_shopping": 40,
        "google_apps": 40,
    }
    assert {(task.platform, bool(task.goal)) for name in NAMES for task in task_list(name)} == {
        ("android", True),
        ("ios", True),
    }


def test_every_task_has_its_own_id() -> None:
    assert len({task.id for name in NAMES for task in task_list(name)}) == 252


def test_goals_in_both_ios_lists_are_marked() -> None:
    folder = resources.files("prill.emulators") / "tasks"
    lists = {
        name: [json.loads(row) for row in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in NAMES
    }
    train, held_out = lists["ios_train"], lists["ios_eval"]
    shared = {task["goal"] for task in train} & {task["goal"] for task in held_out}
    assert len(shared) == 2
    for rows in (train, held_out):
        assert {task["goal"] for task in rows if task.get("in_both")} == shared
    assert not any("in_both" in task for task in lists["android"])


def test_unknown_list_named_with_others() -> None:
    with pytest.raises(
        UsageError,
        match="unknown task list 'windows'; expected one of android, ios_train, ios_eval",
    ):
        task_list("windows")
