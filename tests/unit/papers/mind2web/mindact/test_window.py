"""How much of earlier steps fits: parts are cut one by one, and the current step is never cut for
earlier ones.
"""

from __future__ import annotations

from prill.papers.mind2web.mindact.forms import Passage
from prill.papers.mind2web.mindact.window import Window, rough_tokens
from tests.support.papers.conversations import request

TOKENS = rough_tokens


def words(count: int, mark: str) -> str:
    """So many tokens that can be told from others."""
    return " ".join(f"{mark}{i % 1000:03}" for i in range(count))


def step(mark: str, size: int = 20, answer: str | None = "B.") -> Passage:
    return Passage(f"'''\n{words(size, mark)}\n'''", f"Question {mark}?", answer)


def test_each_part_is_cut_to_its_length() -> None:
    passage = Passage(f"'''\n{words(900, 'p')}\n'''", words(900, "q"), words(900, "a"))
    window = Window(TOKENS, 512, 100_000)
    text = request(window.trained(words(900, "s"), [passage], step("x", answer=None)))
    parts = {mark: sum(word.startswith(mark) for word in text.split()) for mark in "pqa"}
    frame = len(TOKENS("### Human:\n'''\n\n'''\n"))
    assert parts == {"p": 512 - frame, "q": 512 - len(TOKENS("### Assistant:")), "a": 512}
    assert "'''\nq000" in text  # a cut page is closed, and a cut question still asks for an answer
    assert str(window.trained(words(900, "s"), [], passage)[0].parts[0]).split()[-1] == "s511"


def test_history_is_cut_from_the_left() -> None:
    history, current = [step(mark) for mark in "abc"], step("x", answer=None)
    whole = request(Window(TOKENS, 512, 100_000).trained("role", history, current))
    now = request(Window(TOKENS, 512, 100_000).trained("role", [], current))
    size = len(TOKENS("role")) + len(TOKENS(now))
    cut = request(Window(TOKENS, 512, size + 30).trained("role", history, current))
    assert whole.endswith(cut) and cut.endswith(now)
    assert len(TOKENS(cut)) == len(TOKENS(now)) + 30
    assert "c019" in cut and "a019" not in cut


def test_the_current_step_is_never_cut() -> None:
    current = step("x", 300, answer=None)
    window = Window(TOKENS, 512, 40)
    text = request(window.trained("role", [step("a")], current))
    assert "x299" in text and "a0" not in text


def test_chat_keeps_steps_whole_and_examples() -> None:
    history = [step("a", 200), step("b", 20)]
    messages = Window(TOKENS, None, 150).chat(
        "role", [step("e", 500)], history, step("x", answer=None)
    )
    assert [message.role for message in messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert "e499" in str(messages[1]) and "b019" in str(messages[3]) and "x019" in str(messages[5])
