"""What must not change unseen: the identity of every judge and wrapper, the key of a verdict, and what each verb does.

`golden.json` was made before judges were made from specs. Settings that have another name since then are listed here. One
figure is new: the plan for `vlm` counted the path of each screenshot as words of the prompt, so it grew with the path.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prill import Trajectory, judge, read_trajectories
from prill.cli import main
from prill.scoring import verdict_key
from prill.types import EvaluatorInfo

from .cases import JUDGES, NEEDS, ROOT, SAMPLES, VERBS, prepare

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8").replace("{root}", str(ROOT)))
# One name on the command line, in files, in Python and in verdicts: the short ones of the flags.
RENAMED = {"include_answer": "answer", "include_thoughts": "thoughts", "p": "towards", "d": "away"}


def now(params: dict[str, Any]) -> dict[str, Any]:
    """Recorded settings under their present names, those of inner judges too."""
    renamed = {RENAMED.get(key, key): value for key, value in params.items()}
    if "judges" in renamed:
        renamed["judges"] = [{**inner, "params": now(inner["params"])} for inner in renamed["judges"]]
    return renamed


@pytest.fixture
def first() -> Trajectory:
    trajectory = next(iter(read_trajectories(SAMPLES / "trajectories.jsonl")))
    assert isinstance(trajectory, Trajectory)
    return trajectory


@pytest.mark.parametrize("name", JUDGES)
def test_judges_keep_their_identity(name: str, first: Trajectory) -> None:
    if "ocr" in name:
        pytest.importorskip("rapidocr", reason="rapidocr is not installed: pip install 'prill[ocr]'")
    made = judge(JUDGES[name])
    recorded, info = GOLDEN["judges"][name], msgspec.to_builtins(made.info)
    assert {**info, "params": {}} == {**recorded["info"], "params": {}}
    assert info["params"] == now(recorded["info"]["params"])
    # The key by the names of that time: evaluator and input make it as they did.
    old = msgspec.convert(recorded["info"], EvaluatorInfo)
    assert verdict_key(old, first, made.screenshots(first)) == recorded["key"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The input that verbs read, and their output."""
    prepare(tmp_path)
    return tmp_path


def plain(text: str, folder: Path) -> str:
    """The text without paths of this machine and times of this run."""
    text = text.replace(str(folder), "{out}").replace(str(ROOT), "{root}")
    return re.sub(r'"seconds":\s*[\d.e-]+', '"seconds":0', text)


def run(words: tuple[str, ...], folder: Path) -> int:
    """The exit code of a command line."""
    try:
        return main([word.replace("{out}", str(folder)) for word in words])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize("name", VERBS)
def test_verbs_do_what_they_did(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if name in ("fit", "calibrate"):
        pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install 'prill[student]'")
    if name == "rollout":
        pytest.importorskip("miniwob", reason="the MiniWoB++ pages are not installed: pip install --no-deps miniwob")
    words, files = VERBS[name]
    if name in NEEDS:
        run(VERBS[NEEDS[name]][0], folder)
        capsys.readouterr()
    code = run(words, folder)
    recorded = GOLDEN["verbs"][name]
    assert (code, plain(capsys.readouterr().out, folder)) == (recorded["exit"], plain(recorded["stdout"], folder))
    digests = {file: hashlib.sha256(plain((folder / file).read_text(), folder).encode()).hexdigest() for file in files}
    assert digests == recorded["files"]
