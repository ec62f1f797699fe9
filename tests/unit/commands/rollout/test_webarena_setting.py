"""What `prill rollout webarena` makes of its options before any browser starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prill.datasets.webarena_tasks import SITES
from prill.emulators.settings import Playing, Setting
from prill.emulators.shop import shop_configs
from prill.errors import UsageError
from tests.support.commands.as_config import config


@pytest.fixture(autouse=True)
def _no_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    for site in SITES:
        monkeypatch.delenv(site, raising=False)
        monkeypatch.delenv(f"WA_{site}", raising=False)


def setting(folder: Path, *words: str | Path) -> Setting[Any]:
    asked = config("webarena", "-o", str(folder / "out"), *map(str, words)).spec
    return asked.place.setting(Playing(images=folder / "out" / "images", workers=asked.workers))


def written(folder: Path, **changes: Any) -> Path:
    """The shop's task file, each task with these changes."""
    path = folder / "tasks.json"
    path.write_text(json.dumps([task | changes for task in json.loads(shop_configs())]))
    return path


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--shop", "--cookies", "c", "--tasks", "all"), "leave out configs, reset and cookies"),
        (
            ("--shop", "--oracle", "verified", "--tasks", "all"),
            "leave out shop, or choose another oracle",
        ),
        (
            ("--workers", "2", "--reset", "http://h:7565/reset", "--tasks", "all"),
            "every site.*leave out workers",
        ),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        setting(tmp_path, *words)


def test_workers_with_reset_share_no_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task has its sites for itself, those of its login too; what was changed there is known
    to all workers.
    """
    for name in ("SHOPPING", "SHOPPING_ADMIN", "REDDIT", "GITLAB"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    tasks = json.loads(shop_configs())
    tasks[0] |= {"sites": ["reddit"], "storage_state": "./.auth/gitlab.reddit_state.json"}
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    words = ("--configs", tmp_path / "tasks.json", "--tasks", "all", "--workers", "2")
    made = setting(tmp_path, *words, "--reset", "true")
    first, second = made.environments
    assert made.needs[str(tasks[0]["task_id"])] == {"reddit", "gitlab"}
    assert set(made.needs) == set(made.tasks) and all(made.needs.values())
    assert first._changed is second._changed
    assert not setting(tmp_path, *words).needs, "without a reset nobody disturbs the others"
    assert not setting(tmp_path, *words[:-1], "1", "--reset", "true").needs


def test_missing_variables_named_together(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        setting(tmp_path, "--configs", written(tmp_path), "--tasks", "all")
    assert [
        str(caught.value).count(f"export {site}=")
        for site in ("SHOPPING", "SHOPPING_ADMIN", "REDDIT", "GITLAB")
    ] == [1] * 4
