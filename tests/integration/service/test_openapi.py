"""Requests invented from the service's OpenAPI, valid and broken: none ends in an error of the
service's own.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.service.test_process import serving
from tests.support.service.gate import Gate
from tests.support.service.visiting import item, requests, run, visiting


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
        command += ["--phases", "coverage,fuzzing" if thorough else "fuzzing"]
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
        assert "6 selected" in done.stdout
        assert process.poll() is None


async def test_document_describes_the_answers() -> None:
    bodies = {"/v1/score": {"items": [item()]}, **requests(run())}
    async with visiting(Gate()) as (client, _):
        document = (await client.get("/openapi.json")).json()
        schemas = document["components"]["schemas"]
        assert {"Trajectory", "ScoreItem", "Refusal"} <= schemas.keys()
        for path, methods in document["paths"].items():
            [(method, one)], body = methods.items(), bodies.get(path)
            assert one["description"] and (method == "post") == (body is not None)
            answer = (await client.request(method, path, json=body)).json()
            schema = one["responses"]["200"]["content"]["application/json"]["schema"]
            named = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
            assert isinstance(answer, float) or set(named.get("required", ())) <= set(answer)
