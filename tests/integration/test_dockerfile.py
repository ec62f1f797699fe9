"""The Dockerfile: its steps are run here, where no Docker is needed; packages come from the
environment of the tests.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from prill.testing import MockServer
from tests.support.paths import ROOT

TOKEN = "a-token-of-the-test"


def steps() -> list[tuple[str, str]]:
    """Each instruction and its arguments, without comments."""
    lines = [
        line
        for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(words[0], words[1]) for line in joined if len(words := line.split(maxsplit=1)) == 2]


def stages() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The steps of the stage that builds, and of the image."""
    found = steps()
    first, second = (number for number, (word, _) in enumerate(found) if word == "FROM")
    return found[first:second], found[second:]


def value(word: str) -> str:
    """The arguments of an instruction that stands once in the image."""
    (found,) = (rest for name, rest in stages()[1] if name == word)
    return found


def is_ignored(path: str) -> bool:
    """Whether .dockerignore keeps a path out of the build: the last pattern that matches it or a
    folder above it counts.
    """
    ignored = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, again = (line[1:], True) if line.startswith("!") else (line, False)
        above = ["/".join(path.split("/")[:length]) for length in range(1, path.count("/") + 2)]
        names = [name.rpartition("/")[2] for name in above] if pattern.startswith("**/") else above
        if any(fnmatch.fnmatchcase(name, pattern.removeprefix("**/")) for name in names):
            ignored = not again
    return ignored


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the build makes, `/opt/prill` in the image."""
    folder = tmp_path_factory.mktemp("docker")
    places = {"/src": str(folder / "src"), "/opt/prill": str(folder / "prill")}
    setuptools = pytest.importorskip(
        "setuptools", reason="setuptools is not installed: pip install --group test"
    )
    (folder / "backend").mkdir()
    (folder / "backend/setuptools").symlink_to(Path(setuptools.__file__).parent)
    # Without an index: what is needed is borrowed, below. "0" turns the isolation of builds off.
    offline = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    environment = {**os.environ, **offline, "PYTHONPATH": str(folder / "backend")}
    for word, rest in stages()[0]:
        if word == "ARG":
            name, _, default = rest.partition("=")
            environment[name] = default
        elif word == "COPY":
            assert rest == ". /src"
            listed = subprocess.run(
                ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout
            for name in filter(None, listed.split("\0")):
                if not is_ignored(name):
                    target = folder / "src" / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, target, follow_symlinks=False)
        elif word == "RUN":
            command = re.sub(r"/src|/opt/prill", lambda match: places[match[0]], rest)
            command = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", command)
            done = subprocess.run(
                ["sh", "-ec", command], env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            (site,) = (folder / "prill").glob("lib/python*/site-packages")
            borrowed = "\n".join(sysconfig.get_path(name) for name in ("purelib", "platlib"))
            (site / "borrowed.pth").write_text(borrowed, encoding="utf-8")
    return folder / "prill"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def served(built: Path) -> Iterator[tuple[subprocess.Popen[str], str, dict[str, str]]]:
    """The image's process with the options of its CMD, the mock endpoint's model, and another
    port.
    """
    port = value("EXPOSE")
    with MockServer() as server:
        other = str(free_port())
        command = [
            other if word == port else word
            for word in (*json.loads(value("ENTRYPOINT")), *json.loads(value("CMD")))
        ]
        keys = {"PRILL_TOKEN": TOKEN, "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": server.base_url}
        environment = {
            "PATH": f"{built / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(built),
            **keys,
        }
        process = subprocess.Popen(
            [str(built / "bin" / command[0]), *command[1:]],
            env=environment,
            cwd=built,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process, other, environment
        finally:
            process.kill()
            process.communicate()


def test_extras_exist_and_are_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = (rest.partition("=")[2].split(",") for word, rest in steps() if word == "ARG")
    pins = {
        line.partition("==")[0]
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    }
    for extra in extras:
        needed = [
            re.match(r"[\w.-]+", package) for package in project["optional-dependencies"][extra]
        ]
        assert {match[0].lower() for match in needed if match} <= pins
    assert any(
        "--constraint /src/constraints.txt" in rest for word, rest in steps() if word == "RUN"
    )


def test_process_runs_without_privileges() -> None:
    image = stages()[1]
    words = [word for word, _ in image]
    made = next(
        rest.split()[-1] for word, rest in image if word == "RUN" and rest.startswith("useradd")
    )
    assert value("USER") == made and words.index("USER") < words.index("ENTRYPOINT")


def test_build_has_the_package_and_no_secrets() -> None:
    for name in (
        "prill/__init__.py",
        "prill/evaluators",
        "evaluators/judges/prompts/web_vision.md",
        "constraints.txt",
        "README.md",
    ):
        assert not is_ignored(name), name
    for name in (
        ".git/config",
        ".venv/bin/python",
        ".env",
        "out/v.jsonl",
        "tests/conftest.py",
        "datasets/samples/miniwob/labels.jsonl",
    ):
        assert is_ignored(name), name
    assert is_ignored("prill/io/__pycache__/store.cpython-311.pyc")


@pytest.mark.slow
def test_image_serves_a_judge_and_stops(
    served: tuple[subprocess.Popen[str], str, dict[str, str]],
) -> None:
    process, port, environment = served
    probe = [
        word.replace(value("EXPOSE"), port)
        for word in json.loads(value("HEALTHCHECK").partition("CMD ")[2])
    ]
    deadline = time.monotonic() + 60
    while subprocess.run(probe, env=environment, capture_output=True, check=False).returncode:
        assert process.poll() is None and time.monotonic() < deadline, (
            process.stderr and process.stderr.read()
        )
        time.sleep(0.2)
    address = f"http://127.0.0.1:{port}/v1/score"
    body = json.dumps(
        {
            "items": [
                {
                    "trajectory": {
                        "id": "a",
                        "task": {"goal": "g"},
                        "final": {"text": "truth=success"},
                    }
                }
            ]
        }
    ).encode()
    headers = {"content-type": "application/json"}
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=30)
    asked = urllib.request.Request(address, body, headers | {"authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert json.load(answer)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
