"""Captioners that pass on what was recorded."""

from __future__ import annotations

import pytest

from prill.captioner.recorded import GivenCaption, TextState
from prill.errors import NoEvidenceError
from prill.types import Observation


async def test_recorded_caption_is_passed_on() -> None:
    assert (
        await GivenCaption()(Observation(caption=" A cart with one lamp.\n", text="other"))
        == "A cart with one lamp."
    )


async def test_recorded_text_stands_under_its_url() -> None:
    tree = "\n  [1] RootWebArea 'Shop'\n    [2] link 'Cart'\n"
    assert (
        await TextState()(Observation(text=tree)) == "  [1] RootWebArea 'Shop'\n    [2] link 'Cart'"
    )
    assert (await TextState()(Observation(text=tree, url="http://shop/"))).startswith(
        "http://shop/\n  [1] Root"
    )


@pytest.mark.parametrize("nothing", [None, "", " \n"])
async def test_state_without_text_is_no_evidence(nothing: str | None) -> None:
    with pytest.raises(NoEvidenceError, match="no caption"):
        await GivenCaption()(Observation(caption=nothing, text="a page", screenshot="x.png"))
    with pytest.raises(NoEvidenceError, match="no text"):
        await TextState()(
            Observation(text=nothing, caption="a page", screenshot="x.png", url="http://shop/")
        )
