"""What an agent is shown of a recorded page, as one text."""

import pytest

from prill.papers.mind2web.pages.state import PageState, read_state

PAGE = "<html>\n<a backend_node_id='7'>Candidates: 9</a></html>"


@pytest.mark.parametrize(
    "past", [(), ("[link]  Cart -> CLICK",), ("[textbox]  To -> TYPE: Rome", "Candidates: 1 2", "")]
)
def test_state_text_is_read_back(past: tuple[str, ...]) -> None:
    state = PageState(PAGE, ("7", "12"), past)
    assert read_state(state.text()) == state


@pytest.mark.parametrize(
    "about", [("", ""), ("Travel", ""), ("", "Airlines"), ("Travel", "Airlines: Domain: x")]
)
def test_state_tells_the_domain(about: tuple[str, str]) -> None:
    for targets, withheld in ((("3",), ()), ((), ("9",)), (("",), ("9",))):
        state = PageState(PAGE, ("7",), ("Domain: none",), targets, withheld, *about)
        assert read_state(state.text()) == state
