"""What must not change unseen: the identity of every judge and wrapper, the key of a verdict, and
what each verb does.

A change on purpose is recorded by PRILL_GOLDEN=write, and said in the changelog where users notice
it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prill import Trajectory, iter_trajectories, judge
from prill.cli import main
from prill.evaluators.scoring.scorer import verdict_key
from tests.support.golden.cases import JUDGES, NEEDS, RECORDED, VERBS, prepare
from tests.support.paths import ROOT, SUPPORT

FILE = SUPPORT / "golden/golden.json"
Recorded = Callable[[str, str, dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    """What is on record under a kind and a name; when writing, what there is now."""
    golden = json.loads(FILE.read_text(encoding="utf-8").replace("{root}", str(ROOT)))
    writes = os.environ.get("PRILL_GOLDEN") == "write"

    def record(kind: str, name: str, present: dict[str, Any]) -> dict[str, Any]:
        if writes:
            golden[kind][name] = present
        return dict(golden[kind][name])

    yield record
    if writes:
        text = json.dumps(golden, indent=1, sort_keys=True, ensure_ascii=False)
        FILE.write_text(text.replace(str(ROOT), "{root}") + "\n", encoding="utf-8")


@pytest.fixture
def first() -> Trajectory:
    trajectory = next(iter(iter_trajectories(RECORDED)))
    assert isinstance(trajectory, Trajectory)
    return trajectory


@pytest.mark.parametrize("name", JUDGES)
def test_judges_keep_their_identity(name: str, first: Trajectory, recorded: Recorded) -> None:
    if "ocr" in name:
        pytest.importorskip("rapidocr", reason="rapidocr is not installed: pip install '.[ocr]'")
    made = judge(JUDGES[name])
    key = verdict_key(made.info, first, made.screenshots(first))
    present = {"info": msgspec.to_builtins(made.info), "key": key}
    assert present == recorded("judges", name, present)


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
def test_verbs_do_what_they_did(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str], recorded: Recorded
) -> None:
    if name in ("fit", "calibrate"):
        pytest.importorskip(
            "sklearn", reason="scikit-learn is not installed: pip install '.[student]'"
        )
    if name == "rollout" and importlib.util.find_spec("miniwob") is None:
        pytest.skip("the MiniWoB++ pages are not installed: pip install --no-deps miniwob")
    words, files = VERBS[name]
    if name in NEEDS:
        run(VERBS[NEEDS[name]][0], folder)
        capsys.readouterr()
    code = run(words, folder)
    stdout = plain(capsys.readouterr().out, folder)
    digests = {
        file: hashlib.sha256(plain((folder / file).read_text(), folder).encode()).hexdigest()
        for file in files
    }
    present = {"exit": code, "stdout": stdout, "files": digests}
    assert present == recorded("verbs", name, present)
