"""The page of arXiv 2404.06474: its commands in their order, on files in the authors' form, with a
double of the endpoint.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from prill.captioner.ocr import OCRCaptioner, TextBox
from prill.cli import main
from prill.cli.commands import COMMANDS
from prill.cli.derive import derive
from prill.config.registry import load_object
from prill.io.store import iter_trajectories
from prill.testing import MockServer
from tests.e2e.test_documents import ROOT, blocks
from tests.support.caches import own_cache
from tests.support.datasets.authors_release import android, ios, webarena

PAGE = ROOT / "docs/how-to/agent-eval-refine.md"
# What needs a phone, a browser, sites, weights or a person is given to the argument parser alone.
PARSED = ("rollout", "reflexion", "train", "annotate")
MADE_ELSEWHERE = {
    "runs/cogagent/trajectories.jsonl": "out/android",
    "runs/predicted/trajectories.jsonl": "out/aitw",
}


def commands() -> list[list[str]]:
    text = "".join(block.text for block in blocks(PAGE) if block.language == "bash")
    return [shlex.split(line) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with all that the page converts; the working folder is another."""
    theirs = tmp_path / "theirs"
    webarena(
        theirs / "webarena-gpt4cot-release2",
        [("$5", ["click [7] where [7] is [7] link 'A'", "stop [$5]"], True)] * 2,
    )
    android(theirs / "android-cogagent", "Open Chrome", [("Action Type: TaskComplete", "done")])
    tap = ("tap [[851,520]]", "tap [[851,520]]", "idb ui tap --udid U 331 438")
    ios(theirs / "ios-train", [("Open Settings", [tap, ("task complete", "task complete", "")])])
    step = {
        "episode_id": "e",
        "step_id": 0,
        "episode_length": 1,
        "goal_info": "Buy tea",
        "results/action_type": 10,
    }
    (theirs / "aitw-general").mkdir()
    (theirs / "aitw-general/0.json").write_text(json.dumps([step]), encoding="utf-8")
    (tmp_path / "here/runs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PRILL_CACHE_DIR", own_cache(tmp_path))

    async def boxes(self: OCRCaptioner, path: str) -> list[TextBox]:
        return [TextBox("Settings", (0.0, 0.0, 1.0, 1.0), 1.0)]

    monkeypatch.setattr(OCRCaptioner, "_boxes", boxes)
    monkeypatch.setattr("prill.captioner.ocr.engine_version", lambda engine: "test of the page")
    yield theirs


@pytest.mark.slow
def test_every_command_of_the_page_runs(
    released: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = commands()
    assert {words[1] for words in found} >= {
        "convert",
        "score",
        "agree",
        "caption",
        "filter",
        *PARSED,
    }
    with MockServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        for words in found:
            assert words[0] == "prill"
            words = [word.replace("$THEIRS", str(released)) for word in words[1:]]
            name = next(
                (
                    " ".join(words[:count])
                    for count in (2, 1)
                    if " ".join(words[:count]) in COMMANDS
                ),
                None,
            )
            if words[0] in PARSED and name is not None:
                command, rest = COMMANDS[name], words[len(name.split()) :]
                derived, rest = derive(
                    load_object(command.config),
                    rest,
                    command.layout,
                    prog=name,
                    dry_run=bool(command.plan),
                )
                derived.read(rest)
                continue
            for name, folder in MADE_ELSEWHERE.items():
                if name in words:
                    shutil.copytree(folder, Path(name).parent, dirs_exist_ok=True)
                    shutil.move(Path(name).parent / "trajectories.jsonl", name)
            if any(word.startswith("vllm:") for word in words):  # a model by vLLM: the double's
                words = [word.removeprefix("vllm:") for word in words]
            if "--model.base-url" in words:
                words[words.index("--model.base-url") + 1] = server.base_url
            capsys.readouterr()
            assert main(words) == 0, (words, capsys.readouterr().err)
    shown = capsys.readouterr().out
    assert "steps kept" in shown
    rows = [
        json.loads(line) for line in Path("out/filtered/sft.jsonl").read_text("utf-8").splitlines()
    ]
    # the place that was touched is the place that is taught
    assert "tap [[851,520]]" in str(rows[0]["completion"])
    [episode] = list(iter_trajectories("out/aitw/trajectories.jsonl"))
    assert episode.id == "e"


def test_published_figures_are_marked_as_theirs() -> None:
    """Each number of the paper that the page repeats is that of the publication, and stands where
    that is said.
    """
    text = PAGE.read_text(encoding="utf-8")
    for numbers in (("80.6", "82.1", "74.4"), ("90.6", "89.8", "92.9"), ("8", "11", "14")):
        cells = r" \| ".join(map(re.escape, numbers))
        (row,) = re.findall(rf"^\|[^|\n]*\| {cells} \|$", text, re.MULTILINE)
        header = text[: text.index(row)].rpartition("\n\n")[2]
        assert "published, not ours" in header
    assert "Published, not ours" in text and "no figure here is measured by prill" in text


@pytest.mark.parametrize("section", ["Table 1", "Figures 2 and 3", "Table 2"])
def test_each_result_has_command_cost_and_differences(section: str) -> None:
    text = PAGE.read_text(encoding="utf-8").split(f"## {section}", 1)[1].split("\n## ", 1)[0]
    assert "```bash" in text and "*Estimate" in text and "*What differs.*" in text


def test_dollars_of_the_page_are_those_of_the_price() -> None:
    text = PAGE.read_text(encoding="utf-8")

    def dollars(calls: int, tokens_in: int, tokens_out: int) -> float:
        return calls * (tokens_in * 2.5 + tokens_out * 10) / 1e6

    assert "$2.50" in text and "$10" in text
    for words, value in (
        ("812 calls, $5.9", dollars(812, 1900, 250)),
        ("`modular`: $4.9", dollars(812, 1400, 250)),
        ("480 runs: $3.5", dollars(480, 1900, 250)),
        (
            "about $300",
            dollars(19_500, 3500, 200) + dollars(2400, 1900, 250) + dollars(1600, 16_000, 400),
        ),
    ):
        assert words in text
        assert float(words.split("$")[1].split()[0].rstrip(")")) == pytest.approx(value, rel=0.05)
