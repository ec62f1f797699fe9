"""Environments by name: their options are read strictly, and a user's own environment is made like
any other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prill.config.registry import list_options, read_options
from prill.emulators.android.environment import Android, AndroidSpec
from prill.emulators.browser.environment import BrowserEnvironment, PageSpec
from prill.emulators.ios.environment import IosSpec
from prill.emulators.registry import ENVIRONMENTS, make_environment
from prill.emulators.webarena.environment import WebArenaSpec
from prill.errors import UsageError


def test_options_fill_the_spec(tmp_path: Path) -> None:
    for name, maker, spec in (
        (
            "web",
            BrowserEnvironment,
            PageSpec(viewport=(400, 300), pause=0.5, traces=Path("traces")),
        ),
        (
            "android",
            Android,
            AndroidSpec(device="emulator-5554", prepare=("pm clear x",), settle_gap=0.0),
        ),
    ):
        options = {name: getattr(spec, name) for name in spec.__dataclass_fields__}
        made = make_environment(name, images=tmp_path, **options)
        assert isinstance(made, maker)
        assert made._spec == spec  # type: ignore[union-attr]


def test_lax_reads_text_by_type() -> None:
    words = {
        "pause": "2.5",
        "whole_page": "true",
        "max_tokens": "300",
        "cookies": "kept",
        "viewport": [640, 480],
    }
    spec = WebArenaSpec(**read_options(WebArenaSpec, words, "environment 'webarena'", lax=True))
    assert spec == WebArenaSpec(
        pause=2.5, whole_page=True, max_tokens=300, cookies=Path("kept"), viewport=(640, 480)
    )


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("andriod", {}, "unknown environment 'andriod' (did you mean 'android'?)"),
        (
            "android",
            {"still_gab": 1},
            "environment 'android' has no such option (did you mean 'settle_gap'?)",
        ),
        ("android", {"adb_port": "5037"}, "adb_port: Expected `int`, got '5037'"),
        ("android", {"avd": "Pixel", "device": "emulator-5554"}, "give either a running device"),
        ("miniwob", {"settle": -1.0}, "settle: Expected `float` >= 0"),
    ],
)
def test_bad_options_are_refused(
    tmp_path: Path, name: str, options: dict[str, object], problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        make_environment(name, images=tmp_path, **options)  # type: ignore[arg-type]
    assert problem in str(caught.value)


def test_own_environment_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "class Own:\n    def __init__(self, size: int = 1): self.size = size\n"
        "    async def reset(self, task): ...\n    async def step(self, action): ...\n    async "
        "def close(self): ...\n"
    )
    made = make_environment(f"{tmp_path / 'own.py'}:Own", images=tmp_path, size=3)
    assert made.size == 3  # type: ignore[attr-defined]


def test_flat_options_are_those_of_the_spec() -> None:
    assert {option.name for option in list_options(IosSpec).values()} <= set(
        list_options(ENVIRONMENTS.maker("ios"))
    )
