"""Formats are told by content: each sample is known to its own format alone, under any name, and
nothing else is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.datasets.formats import recognise
from tests.integration.fuzz.test_formats import SAMPLES

UNRECOGNISED = {"screenshots"}  # a folder of pictures tells nothing


@pytest.mark.parametrize("format", SAMPLES)
def test_each_sample_is_known_to_its_format_alone(format: str, tmp_path: Path) -> None:
    assert recognise(SAMPLES[format](tmp_path / "in")) == (
        [] if format in UNRECOGNISED else [format]
    )
