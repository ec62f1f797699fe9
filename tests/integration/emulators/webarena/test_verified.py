"""WebArena-Verified's package as an oracle, on answers and on recorded traffic made up here."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from prill.emulators.webarena.verified import WebArenaVerifiedOracle, task_number
from prill.errors import InputError, UsageError
from prill.types import LabelRecord, Task, Trajectory

# What the package depends on uses what its own dependencies no longer want.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ADDRESSES = {"SHOPPING_ADMIN": "http://admin.test/admin/", "GITLAB": "http://git.test"}


def har(folder: Path, *urls: str) -> Path:
    """A trace of page loads, as Playwright records them."""
    asked = [
        {"name": "Sec-Fetch-Dest", "value": "document"},
        {"name": "accept", "value": "text/html"},
    ]
    request = {"method": "GET", "headers": asked, "queryString": []}
    content = {"size": 0, "mimeType": "text/html"}
    response = {
        "status": 200,
        "headers": [{"name": "content-type", "value": "text/html"}],
        "content": content,
    }
    entries = [{"request": {**request, "url": url}, "response": response} for url in urls]
    path = folder / "network.har"
    path.write_text(json.dumps({"log": {"entries": entries}}), encoding="utf-8")
    return path


def episode(
    task: int, answer: dict[str, object] | str | None, error: str | None = None
) -> Trajectory:
    said = json.dumps(answer) if isinstance(answer, dict) else answer
    return Trajectory(
        id="one", task=Task(id=f"webarena.{task}", goal="g"), answer=said, error=error
    )


def retrieved(*values: str) -> dict[str, object]:
    return {"task_type": "RETRIEVE", "status": "SUCCESS", "retrieved_data": list(values)}


@pytest.fixture(scope="module")
def oracle() -> WebArenaVerifiedOracle:
    if importlib.util.find_spec("webarena_verified") is None:
        pytest.skip(
            "webarena-verified is not installed: pip install webarena-verified, in an environment "
            "of its own"
        )
    return WebArenaVerifiedOracle(ADDRESSES)


@pytest.mark.parametrize(
    ("answer", "passed", "words"),
    [
        (retrieved("Quest Lumaflex™ Band"), True, None),
        (retrieved("quest lumaflex band"), True, None),
        (retrieved("Sprite Ball"), False, "mismatch"),
        ("Quest Lumaflex™ Band", False, "invalid_format"),
        (None, False, "none_mismatch"),
    ],
)
async def test_verified_grades_answers(
    oracle: WebArenaVerifiedOracle,
    tmp_path: Path,
    answer: dict[str, object] | str | None,
    passed: bool,
    words: str | None,
) -> None:
    label = await oracle.grade(
        episode(0, answer), har(tmp_path, "http://admin.test/admin/dashboard")
    )
    assert (label.success, label.source) == (passed, "webarena-verified")
    assert (label.note is None) if words is None else words in (label.note or "")


def test_goal_has_the_form_of_the_answer(oracle: WebArenaVerifiedOracle) -> None:
    text = oracle.goal(0)
    assert text.startswith("Get the top-1 best-selling product name(s) in 2022\n")
    assert all(f'"{name}"' in text for name in retrieved("x")) and "RETRIEVE" in text
    assert "Lumaflex" not in text
    with pytest.raises(UsageError, match="has no task 812"):
        oracle.goal(812)


async def test_visited_pages_are_graded(oracle: WebArenaVerifiedOracle, tmp_path: Path) -> None:
    for url, passed in (
        ("http://git.test/dashboard/todos", True),
        ("http://git.test/dashboard", False),
    ):
        navigated: dict[str, object] = {
            "task_type": "NAVIGATE",
            "status": "SUCCESS",
            "retrieved_data": None,
        }
        assert (await oracle.grade(episode(44, navigated), har(tmp_path, url))).success is passed


async def test_broken_traffic_has_no_label(oracle: WebArenaVerifiedOracle, tmp_path: Path) -> None:
    path = har(tmp_path)
    path.write_text("{", encoding="utf-8")
    label = await oracle.grade(episode(44, retrieved("x")), path)
    assert (label.success, "Failed to evaluate task 44" in (label.note or "")) == (None, True)
    broken = await oracle.grade(episode(44, None, error="the browser crashed"), path)
    assert broken == LabelRecord(
        id="one",
        success=None,
        source="webarena-verified",
        note="ended with an error: the browser crashed",
    )
    with pytest.raises(InputError, match=r"none\.har: no such file"):
        await oracle.grade(episode(44, None), tmp_path / "none.har")


def test_no_addresses_is_one_error(oracle: WebArenaVerifiedOracle) -> None:
    with pytest.raises(UsageError, match="set the URLs of the sites: SHOPPING"):
        WebArenaVerifiedOracle({})


def test_missing_package_says_what_to_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "webarena_verified", None)
    with pytest.raises(UsageError, match="pip install webarena-verified"):
        WebArenaVerifiedOracle(ADDRESSES)


@pytest.mark.parametrize("name", ["webarena.812", "webarena.x", "miniwob.1", "7"])
def test_tasks_beyond_812_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not one of webarena.0"):
        task_number(Trajectory(id="one", task=Task(id=name, goal="g")))
