"""Folders that may not be written, as a user who is not root: one clear error before anything long,
and nothing lost.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from prill.cli import main

from .conftest import environment

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "datasets/samples/miniwob"
NOBODY = 65534
# Another user, who may read and search everything, as this test's packages may be in root's home,
# and writes what its user may.
AS_USER = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)
T, L, V = "s/trajectories.jsonl", "s/labels.jsonl", "v.jsonl"
# nobody listens: whoever asks it says so
GONE = ("--model", "m", "--base-url", "http://127.0.0.1:9/v1")
PLAYED = ("--policy", "react", "--tasks", "click-link", "--seeds", "0", *GONE)
JUDGED = ("--judge", "vlm", *GONE)
# What each command would write in a folder that may not be written.
COMMANDS: dict[str, tuple[str, ...]] = {
    "score": ("score", T, "-o", "locked/x.jsonl", *JUDGED),
    "score, deeper": ("score", T, "-o", "locked/a/b/x.jsonl", *JUDGED),
    "score, a file that is there": ("score", T, "-o", "locked/there.jsonl", *JUDGED),
    "score, replies that are kept": (
        "score",
        T,
        "-o",
        "free/x.jsonl",
        *JUDGED,
        "--cache",
        "locked/cache",
    ),
    "batch write": ("batch", "write", T, "-o", "locked/b", *JUDGED),
    "batch write, again": ("batch", "write", T, "-o", "locked/batch", *JUDGED),
    "batch submit": ("batch", "submit", "locked/batch"),
    "batch collect": ("batch", "collect", "locked/batch", "-o", "locked/x.jsonl"),
    "train": ("train", "policy", "rows.jsonl", "-o", "locked/m"),
    "filter": ("filter", T, "--verdicts", V, "-o", "locked/rows"),
    "filter, a folder that is there": ("filter", T, "--verdicts", V, "-o", "locked/empty"),
    "filter, a folder of one's own": ("filter", T, "--verdicts", V, "-o", "locked/rows-own"),
    "convert": ("convert", "atif", "s", "-o", "locked/c"),
    "rollout": ("rollout", "miniwob", "-o", "locked/r", *PLAYED),
    "rollout, a folder that is there": ("rollout", "miniwob", "-o", "locked/empty", *PLAYED),
    "reflexion": (
        "reflexion",
        "miniwob",
        "-o",
        "locked/r",
        *PLAYED,
        "--judge",
        "vlm",
        "--judge.model",
        "m",
    ),
    "refine": (
        "refine",
        "filtered-bc",
        str(ROOT / "examples/filtered_bc/short.toml"),
        "-o",
        "locked/bc",
    ),
    "bench": ("papers", "bench", "miniwob", "-o", "locked/bench", *PLAYED),
    "caption": ("caption", T, "-o", "locked/c.jsonl", *GONE),
    "caption, for training": ("caption", T, "-o", "locked/c", "--for-training", *GONE),
    "exemplars": ("papers", "exemplars", T, "--verdicts", V, "-o", "locked/e"),
    "exemplars, a folder that is there": (
        "papers",
        "exemplars",
        T,
        "--verdicts",
        V,
        "-o",
        "locked/empty",
    ),
    "fit": ("fit", T, L, "-o", "locked/j.json"),
    "fit, out of fold": ("fit", T, L, "-o", "free/j.json", "--out-of-fold", "locked/o.jsonl"),
    "calibrate": ("calibrate", V, L, "-o", "locked/c.json"),
    "calibrate, a diagram": ("calibrate", V, L, "-o", "free/c.json", "--plot", "locked/c.svg"),
    "redteam": ("redteam", T, L, "-o", "locked/r", *JUDGED),
    "annotate": ("annotate", T, "-o", "locked/l.jsonl", "--annotator", "me"),
    "table": ("table", V, "-o", "locked/t.csv", "--format", "csv"),
    "report": ("report", T, "-o", "locked/r.html", "--verdicts", V),
    "merge": ("merge", V, "-o", "locked/m.jsonl"),
    "conversations": ("papers", "conversations", T, "-o", "locked/m.json", *GONE),
    "rank": ("papers", "rank", T, "-o", "locked/m.json", "--ranker", "bm25"),
    "watch": ("watch", V, "-o", "locked/w.html"),
    "serve": ("serve", "--judge", "always-fail", "--observations", "locked/w.jsonl"),
    # The user's own files, which would be replaced by others: only the folder says that this cannot
    # be. What is to be read is broken: who reads it first says that instead.
    "fit, a file of one's own": ("fit", T, "broken.jsonl", "-o", "locked/j-own"),
    "calibrate, a file of one's own": ("calibrate", "broken.jsonl", L, "-o", "locked/c-own"),
    "merge, a file of one's own": ("merge", "broken.jsonl", "-o", "locked/v-own"),
    "report, a file of one's own": ("report", T, "-o", "locked/own", "--verdicts", "broken.jsonl"),
}


# The exit code and the words of each command, and the files that are not as they were.
Came = tuple[dict[str, tuple[int | str, str]], list[str]]


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def came() -> Iterator[Came]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to become a user who is not root")
    # pytest's own folders may be entered by root alone
    folder = Path(tempfile.mkdtemp(prefix="prill-unwritable-"))
    try:
        made = subprocess.run([*AS_USER, sys.executable, "-c", ""], check=False)
        if made.returncode:
            pytest.skip("setpriv cannot give the right to read everything here")
        yield _run(folder)
    finally:
        shutil.rmtree(folder)


def _run(folder: Path) -> Came:
    folder.chmod(0o755)
    shutil.copytree(SAMPLES, folder / "s")
    here = Path.cwd()
    os.chdir(folder)
    try:
        for words in (
            ("score", T, "-o", V, "--judge", "self-report"),
            ("fit", T, L, "-o", "locked/j-own"),
            ("calibrate", V, L, "-o", "locked/c-own"),
            ("batch", "write", T, "-o", "locked/batch", *JUDGED, "--limit", "2"),
        ):
            assert main(list(words)) in (0, 3), words
    finally:
        os.chdir(here)
    shutil.copy(folder / V, folder / "locked/v-own")
    (folder / "rows.jsonl").write_text(
        json.dumps(
            {
                "prompt": [{"role": "user", "content": "a"}],
                "completion": [{"role": "assistant", "content": "b"}],
            }
        )
        + "\n"
    )
    (folder / "broken.jsonl").write_text("{broken\n")
    for name in ("locked/empty", "locked/rows-own"):
        (folder / name).mkdir()
    for name in ("locked/there.jsonl", "locked/own"):
        (folder / name).touch()
    for own in (folder / "free", folder / "cache"):
        own.mkdir(exist_ok=True)
    for own in (folder / "free", folder / "cache", *(folder / "locked").glob("*own")):
        os.chown(own, NOBODY, NOBODY)
    before = content(folder)
    done = subprocess.run(
        [*AS_USER, sys.executable, str(Path(__file__).with_name("as_user.py")), str(folder)],
        input=json.dumps(COMMANDS),
        capture_output=True,
        text=True,
        env=environment()
        | {
            "PRILL_CACHE_DIR": str(folder / "cache"),
            "HOME": str(folder / "free"),
            "OPENAI_API_KEY": "none",
        },
        check=True,
    )
    found = json.loads(done.stdout)
    after = content(folder)
    changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    return found, [name for name in changed if name in before or name.startswith("locked/")]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_that_may_not_be_written(came: Came, name: str) -> None:
    """Exit code 2 and one line that names the place; the endpoint, which is not there, was not
    asked.
    """
    code, words = came[0][name]
    assert code == 2, words
    (line,) = words.strip().splitlines()
    first, second = COMMANDS[name][:2]
    command = f"{first} {second}" if first in ("batch", "papers", "refine", "train") else first
    assert line.startswith(f"prill {command}: ") and "locked" in line
    assert "ermission denied" in line and "127.0.0.1" not in line


def test_nothing_was_written_or_lost(came: Came) -> None:
    assert came[1] == []
