"""Judges by name: one description for Python, TOML and JSON; plug-ins; prompts of one's own; judges
that travel.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import prill
from prill import Observation, Task, Trajectory, UsageError
from prill.captioner.recorded import TextState
from prill.config.registry import OptionError
from prill.evaluators.combine import Vote
from prill.evaluators.judge import PageJudge
from prill.evaluators.wrappers.rewritten import EvidenceOnly
from prill.models import OpenAIModel
from prill.protocols import every_judge, get_concurrency
from prill.testing import ScriptedModel

RUN = Trajectory(
    id="a",
    task=Task(goal="Buy tea. truth=success", platform="web"),
    final=Observation(text="ordered"),
)
DESCRIPTION: dict[str, Any] = {
    "name": "vote",
    "rule": "any",
    "judges": [
        {"name": "modular", "model": "m", "captioner": "text", "frames": 2},
        {"name": "self-report"},
    ],
}
TOML = """
name = "vote"
rule = "any"

[[judges]]
name = "modular"
model = "m"
captioner = "text"
frames = 2

[[judges]]
name = "self-report"
"""
OWN = '''
from typing import Annotated
from msgspec import Meta
from prill import Observation
from prill import Trajectory
from prill import Verdict
from prill.types import EvaluatorInfo
from prill.protocols import LanguageModel

class Short:
    """Success when there were few steps."""

    def __init__(self, most: Annotated[int, Meta(ge=1, description="most steps of a success")] = 10) -> None:
        self.most = most
        self.info = EvaluatorInfo("short", "1", params={"most": most})

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        return []

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        success = len(trajectory.steps) <= self.most
        return Verdict(id=trajectory.id, success=success, score=float(success), evaluator=self.info)

class Asks:
    def __init__(self, model: LanguageModel, tries: int) -> None:
        self.model, self.tries = model, tries
        self.info = EvaluatorInfo("asks", "1", model.name)

    def screenshots(self, trajectory: Trajectory) -> list[str]:
        return []

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        return Verdict(id=trajectory.id, success=True, evaluator=self.info)

class Loud:
    name = "loud"

    def __init__(self, mark: str = "!") -> None:
        self.mark = mark

    async def __call__(self, observation: Observation) -> str:
        return (observation.text or "").upper() + self.mark

READY = Short(3)
'''  # noqa: E501


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(OWN)
    return str(tmp_path / "mine.py")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")


def test_one_description_everywhere(tmp_path: Path) -> None:
    (tmp_path / "j.toml").write_text(TOML)
    (tmp_path / "j.json").write_text(json.dumps(DESCRIPTION))
    keywords = prill.judge(
        "vote",
        rule="any",
        judges=[
            prill.judge("modular", model="m", captioner="text", frames=2),
            prill.judge("self-report"),
        ],
    )
    made = [
        prill.judge(tmp_path / "j.toml"),
        prill.judge(str(tmp_path / "j.json")),
        prill.judge(DESCRIPTION),
        keywords,
    ]
    assert len({json.dumps(judge.info.params, sort_keys=True) for judge in made}) == 1
    assert isinstance(made[0], Vote)


def test_objects_stand_for_names() -> None:
    model = ScriptedModel(["Thoughts: x\nStatus: success"])
    judge = prill.judge("modular", model=model, captioner=TextState(), evidence_only=True)
    assert isinstance(judge, EvidenceOnly)
    assert prill.score([RUN], judge)[0].success is True
    assert prill.judge(judge) is judge


def test_model_options_beside_the_judge() -> None:
    judge = prill.judge("vlm", model="m", base_url="http://here/v1", concurrency=3)
    same = prill.judge("vlm", model={"name": "m", "base_url": "http://here/v1", "concurrency": 3})
    for made in (judge, same):
        assert isinstance(made, PageJudge)
        assert isinstance(made.model, OpenAIModel)
        assert made.model.endpoint.base_url == "http://here/v1"
        assert get_concurrency(made) == 3


def test_parts_inherit_the_model() -> None:
    parts = [{"name": "modular", "captioner": "text"}, {"name": "vlm", "model": "other"}]
    judge = prill.judge("vote", model="m", judges=parts)
    assert [part.info.model for part in every_judge(judge)] == ["m + other", "m", "other"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "vlm",
            {"model": "m", "frame": 2},
            "frame: judge 'vlm' has no such option (did you mean 'frames'?)",
        ),
        ("vlm", {"model": "m", "frames": "2"}, "frames: Expected `int`, got '2'"),
        ("vlm", {"model": "m", "max_chars": 2}, "judges with this option: modular, steps"),
        ("vlm", {}, "model is missing: judge 'vlm' needs it"),
        ("modular", {"model": "m"}, "captioner is missing"),
        ("modular", {"model": "m", "captioner": "nonsense"}, "unknown captioner 'nonsense'"),
        ("vlm", {"model": "embedded", "frames": 1}, "does not accept images"),
        (
            "student",
            {"model": "s.json", "base_url": "http://x"},
            "base_url: judge 'student' has no such option",
        ),
        (
            "vlm",
            {"model": "vllm:q", "base_url": "http://x"},
            "base_url: model 'vllm:q' is not at an endpoint, so it has no such option",
        ),
        ("nobody", {}, "unknown judge 'nobody'"),
        ("vlmm", {}, "did you mean 'vlm'?"),
        ("rubric", {"model": "m", "threshold": 0}, "threshold: Expected `float` > 0"),
    ],
)
def test_a_wrong_option_is_one_error(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        prill.judge(name, **options)
    assert message in str(raised.value)
    assert "--" not in str(raised.value)


def test_option_errors_name_the_option() -> None:
    with pytest.raises(OptionError) as raised:
        prill.judge("vote", judges=[{"name": "vlm", "model": "m", "frames": 0}])
    assert raised.value.option == "frames"
    assert str(raised.value).startswith("judges[0].frames:")


def test_a_judge_of_ones_own(own: str) -> None:
    judge = prill.judge(f"{own}:Short", most=2, evidence_only=True)
    assert prill.score([RUN], judge)[0].success is True
    assert judge.info.params == {"most": 2, "evidence_only": True}
    assert (
        prill.judge({"name": "vote", "judges": [{"name": f"{own}:Short", "most": 1}]}).info.name
        == "vote"
    )
    assert prill.judge(f"{own}:READY").info.params == {"most": 3}
    with pytest.raises(UsageError, match="most: Expected `int` >= 1"):
        prill.judge(f"{own}:Short", most=0)
    with pytest.raises(UsageError, match=r"no such option \(did you mean 'most'\?\)"):
        prill.judge(f"{own}:Short", moss=1)
    with pytest.raises(UsageError, match=r"has no 'Shor' \(did you mean 'Short'\?\)"):
        prill.judge(f"{own}:Shor")


def test_a_captioner_of_ones_own(own: str) -> None:
    model = ScriptedModel(["Thoughts: x\nStatus: success"])
    captioner = {"name": f"{own}:Loud", "mark": "?"}
    judge = prill.judge("modular", model=model, captioner=captioner)
    assert prill.score([RUN], judge)[0].success
    assert "ORDERED?" in str(model.seen[0])
    assert prill.make_captioner(f"{own}:Loud").name == "loud"


def test_entry_points_add_names(tmp_path: Path) -> None:
    package = tmp_path / "their-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: their\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[prill.evaluators]\nshort = their_judges:Short\n")
    (tmp_path / "their_judges.py").write_text(OWN)
    program = (
        "import prill; from prill.cli import main; print(prill.judge('short', "
        "most=4).info.params); main(['judges'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "{'most': 4}" in done.stdout
    assert "short             from their_judges:Short" in done.stdout


PROMPT = """# system
You judge {{ device }}. Be strict.

# user
{{ code }} {{ goal }} {{ actions }} {{ claims }} {{ state }}
"""


def test_a_prompt_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text(PROMPT)
    model = ScriptedModel(["Thoughts: x\nStatus: success"] * 2)
    judge = prill.judge("modular", model=model, captioner="text", prompt=str(tmp_path / "mine.md"))
    assert prill.score([RUN], judge)[0].success
    assert "You judge web sites. Be strict." in str(model.seen[0])
    plain = prill.judge("modular", model=model, captioner="text")
    assert judge.info.prompt != plain.info.prompt
    assert judge.info.params == plain.info.params
    one = prill.judge(
        "modular", model=model, captioner="text", prompt={"web_text": str(tmp_path / "mine.md")}
    )
    assert len({judge.info.prompt, plain.info.prompt, one.info.prompt}) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PROMPT.replace("{{ goal }}", ""), "placeholder goal is missing"),
        (PROMPT + "{{ frames }}", "unknown name frames"),
        (PROMPT.replace("# user", ""), "needs the headings `# system` and `# user`"),
    ],
)
def test_a_wrong_prompt_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.md").write_text(text)
    with pytest.raises(UsageError) as raised:
        prill.judge("modular", model="m", captioner="text", prompt=str(tmp_path / "mine.md"))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "description",
    [
        {"name": "vlm", "frames": 2},
        {"name": "modular", "captioner": "text", "cache": "{tmp}", "evidence_only": True},
        {"name": "webjudge"},
        {"name": "rubric", "captioner": "text"},
        {"name": "steps", "captioner": "text"},
        {"name": "vote", "samples": 2, "judges": [{"name": "modular", "captioner": "text"}]},
        {"name": "cascade", "judges": [{"name": "self-report"}, {"name": "vlm"}]},
    ],
)
def test_judges_pickle(description: dict[str, Any], tmp_path: Path) -> None:
    filled = json.loads(json.dumps(description).replace("{tmp}", str(tmp_path)))
    judge = prill.judge(filled, defaults={"model": "m"})
    assert pickle.loads(pickle.dumps(judge)).info == judge.info
