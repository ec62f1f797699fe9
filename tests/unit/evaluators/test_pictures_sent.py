"""In how many calls of a run of a judge a picture is, by what the mock endpoint was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture

from prill import judge
from prill.evaluators.judge import load_page
from prill.evaluators.page import list_pages
from prill.evaluators.registry import JUDGES
from prill.models.calls import ImageFile, transcribed
from prill.testing import MockServer
from prill.types import Action, Observation, Step, Task, Trajectory, Usage, Verdict

# A judge, its options, and in how many calls a picture is at most: two where the published method
# rates a frame and shows it again.
SENT: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("vlm", {}, 1),
    ("vlm", {"frames": 9}, 1),
    ("modular", {"frames": 9}, 1),
    ("steps", {}, 1),
    ("aer-steps", {}, 1),
    ("checklist", {}, 1),
    ("ask", {"question": "Was it bought?"}, 1),
    ("rubric", {}, 2),
)
PUBLISHED = [name for name in list_pages() if load_page(name).source]
TWICE = {"webjudge", "webjudge-general", "uv"}
# They read no picture: fitted ones and constants; one model in this process reads the page's text.
BLIND = {"student", "prior", "oracle", "noisy", "self-report", "always-fail", "always-success"}
BLIND |= {"likelihood"}
OTHERS = {"vote", "cascade", "ensemble", "stacked"}  # they run other judges


@pytest.fixture(scope="module")
def endpoint() -> Iterator[MockServer]:
    with MockServer(truth="tests.support.frame_replies:reply", ignore_format=True) as server:
        yield server


def attempt(folder: str | Path, shades: str) -> Trajectory:
    """A picture for each letter; equal letters look the same, in files of their own."""
    states = []
    for i, shade in enumerate(shades):
        path = Path(folder, f"{i}{shade}.png")
        Picture.new("L", (60, 40), ord(shade)).save(path)
        states.append(Observation(str(path), text=f"page {shade}", url=f"http://shop/{i}"))
    steps = tuple(Step(state, Action("click", "click")) for state in states[:-1])
    task = Task(goal="Buy it truth=success", platform="web")
    return Trajectory(id="a", task=task, steps=steps, final=states[-1], answer="Done")


async def run_judge(
    server: MockServer, run: Trajectory, name: str, options: dict[str, Any]
) -> tuple[Verdict, list[list[str]], Usage]:
    """Returns the verdict, the pictures of each call by content, and the estimate."""
    model = {"model": "m", "base_url": server.base_url}
    if name in ("modular", "steps", "aer-steps", "checklist", "ask"):
        options = {**options, "captioner": {"name": "vlm", **model}}
    made = judge(name, **model, **options)
    before = server.stats().images
    with transcribed() as calls:
        verdict = await made(run)
    sent = [
        [str(part.sha256) for turn in call.messages for part in turn.parts if _is_image(part)]
        for call in calls
    ]
    assert server.stats().images - before == sum(map(len, sent)) == verdict.usage.images
    return verdict, sent, made.estimate(run)


def _is_image(part: object) -> bool:
    return isinstance(part, ImageFile)


def test_the_table_has_every_judge() -> None:
    assert {name for name, *_ in SENT} | BLIND | OTHERS | {*PUBLISHED} == set(JUDGES.entries)


@pytest.mark.parametrize(("name", "options", "most"), SENT)
async def test_a_picture_is_sent_no_more_often_than_the_method_needs(
    endpoint: MockServer, name: str, options: dict[str, Any], most: int, tmp_path: Path
) -> None:
    verdict, sent, estimate = await run_judge(
        endpoint, attempt(tmp_path, "abacadcd"), name, options
    )
    assert verdict.success is True, verdict.reason
    assert all(len(call) == len(set(call)) for call in sent)
    counts = Counter(picture for call in sent for picture in call)
    assert max(counts.values()) == most and len(counts) > 1
    if name in ("vlm", "rubric"):
        assert estimate.images >= verdict.usage.images
        assert estimate.calls == verdict.usage.calls


async def test_published_protocols_send_a_picture_as_their_authors_do(tmp_path: Path) -> None:
    run = attempt(tmp_path, "abcd")
    with MockServer(truth="tests.support.protocol_replies:reply") as server:
        for name in PUBLISHED:
            verdict, sent, _ = await run_judge(server, run, name, {})
            assert verdict.success is True, verdict.reason
            counts = Counter(picture for call in sent for picture in call)
            assert max(counts.values(), default=1) == (2 if name in TWICE else 1), name
