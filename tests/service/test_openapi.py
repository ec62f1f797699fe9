"""Requests invented from the service's OpenAPI, valid and broken: none ends in an error of the
service's own.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Visiting
from .gate import Gate
from .test_process import serving


@pytest.mark.slow
def test_invented_requests_break_nothing(tmp_path: Path) -> None:
    places = (
        os.environ.get("PRILL_SCHEMATHESIS"),
        str(Path(sys.prefix) / "schemathesis/bin/schemathesis"),
        "schemathesis",
    )
    tool = next((path for place in places if place and (path := shutil.which(place))), None)
    if tool is None:
        pytest.skip("schemathesis is not installed: make .venv/schemathesis/.installed")
    thorough = os.environ.get("PRILL_LONG") == "1"
    with serving("--judge", "always-success") as (process, url):
        command = [
            tool,
            "run",
            f"{url}/openapi.json",
            "--seed",
            "1",
            "--no-color",
            "--warnings",
            "off",
        ]
        command += ["--phases", "examples,coverage,fuzzing" if thorough else "examples,fuzzing"]
        command += [
            "--max-examples",
            "200" if thorough else "4",
            "--suppress-health-check",
            "all",
            "--generation-database",
            "none",
        ]
        checks = (
            "not_a_server_error",
            "status_code_conformance",
            "content_type_conformance",
            "response_schema_conformance",
        )
        done = subprocess.run(
            [*command, "--checks", ",".join(checks)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5000:]
        assert "8 selected" in done.stdout
        assert process.poll() is None


async def test_every_example_gets_an_answer(visiting: Visiting) -> None:
    async with visiting(Gate()) as (client, _):
        document = (await client.get("/openapi.json")).json()
        for path, methods in document["paths"].items():
            if "post" in methods:
                body = methods["post"]["requestBody"]["content"]["application/json"]["example"]
                answer = await client.post(path, json=body)
                assert (
                    str(answer.status_code) in methods["post"]["responses"] and answer.is_success
                ), answer.text
