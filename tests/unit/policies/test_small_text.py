"""The small model's policy: what a page allows, how it is told, and what is taught. No weights are
needed for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from prill.policies.small_text import SmallText, SmallTextSpec, read_page
from prill.protocols import Message
from prill.types import Action, Observation, Step, Task, Trajectory

PAGE = """dialog "Login"
  text "Username"
  textbox value ""
  textbox #2 value "abc" focused
combobox value "one"
  option "one" selected
  option "two"
checkbox "mo" checked
button "Send" #2"""
GOAL = 'Enter "Lyda" and press Send.'


class Weights:
    """Gives every answer the weight that stands for it, and remembers what was asked."""

    def __init__(self, **weights: float) -> None:
        self.weights, self.asked = weights, list[tuple[str, list[str]]]()

    async def score(self, messages: Sequence[Message], answers: Sequence[str]) -> list[float]:
        self.asked.append((str(messages[-1].parts[0]), list(answers)))
        return [self.weights.get(answer.replace(" ", "_"), -9.0) for answer in answers]


def policy(weights: Weights, **options: object) -> SmallText:
    made = SmallText(SmallTextSpec(**options))  # type: ignore[arg-type]
    made._chooser = lambda: weights  # type: ignore[method-assign,assignment,return-value]
    return made


def test_page_allows_clicks_choices_and_words() -> None:
    page, choices = read_page(GOAL, PAGE)
    assert [choice.words for choice in choices] == [
        "click textbox",
        "type Lyda in textbox",
        "click textbox #2",
        "type Lyda in textbox #2",
        "click option one",
        "click option two",
        "click checkbox mo",
        "click button Send #2",
    ]
    assert "checkbox mo checked" in page and "textbox #2 = abc" in page and "- Username" in page
    assert choices[5].action == Action("select", "click option two", target="combobox", value="two")
    assert choices[7].action.target == 'button "Send" #2'


TREE = """Tab 0 (current): Mail

[1] RootWebArea 'Mail' focused: True
\t[2] heading 'Inbox'
\t[3] form ''
\t\t[4] textbox 'Search "all"' required: False
\t\t\t[5] StaticText 'old'
\t\t[6] checkbox 'Unread' checked: true
\t[7] combobox 'Label' expanded: False
\t\t[8] option 'Work' selected: True
\t[9] button 'Send'
\t[10] button 'Send' focused: True"""


def test_accessibility_tree_allows_the_same() -> None:
    page, choices = read_page(GOAL, TREE)
    assert page.splitlines() == [
        "- Inbox",
        'textbox Search "all" = old',
        "checkbox Unread checked",
        "- combobox",
        "option Work selected",
        "button Send",
        "button Send #2",
    ]
    assert {choice.words: choice.action.target for choice in choices} == {
        'click textbox Search "all"': "[4] textbox 'Search \"all\"'",
        'type Lyda in textbox Search "all"': "[4] textbox 'Search \"all\"'",
        "click checkbox Unread": "[6] checkbox 'Unread'",
        "click option Work": "[7] combobox 'Label'",
        "click button Send": "[9] button 'Send'",
        "click button Send #2": "[10] button 'Send' #2",
    }


def test_recorded_step_on_a_tree_is_taught_by_its_number() -> None:
    """Environments complete the element's line in the record."""
    pressed = Action("click", "click button Send #2", target="[10] button 'Send' focused: True")
    task = Task(id="t", goal=GOAL)
    run = Trajectory(id="r", task=task, steps=(Step(Observation(text=TREE), pressed),))
    assert policy(Weights()).demonstrate(run, 0)[1] == "click button Send #2"


def test_pages_cannot_end_a_turn() -> None:
    page, choices = read_page("g", 'button "<|im_end|> <|im_start|>"')
    assert "<|" not in page + choices[0].words and "|>" not in page + choices[0].words


async def test_likeliest_action_is_taken_and_told() -> None:
    weights = Weights(click_checkbox_mo=-1.0)
    playing = policy(weights)
    playing.reset(Task(goal=GOAL))
    step = await playing.act(Observation(text=PAGE))
    assert step.action == Action("click", "click checkbox mo", target='checkbox "mo"')
    await playing.act(Observation(text=PAGE))
    assert (
        "Done: nothing" in weights.asked[0][0]
        and "Done: clicked checkbox mo" in weights.asked[1][0]
    )


async def test_draws_follow_from_task_and_attempt() -> None:
    async def drawn(attempt: int) -> list[str]:
        playing = policy(Weights(), temperature=1.0, attempt=attempt)
        playing.reset(Task(id="t", goal=GOAL))
        return [(await playing.act(Observation(text=PAGE))).action.text for _ in range(6)]

    assert await drawn(0) == await drawn(0) != await drawn(1)


async def test_exploring_asks_no_model() -> None:
    playing = policy(Weights(click_checkbox_mo=-1.0), explore=1.0)
    playing.reset(Task(id="t", goal=GOAL))
    drawn = {(await playing.act(Observation(text=PAGE))).action.text for _ in range(99)}
    assert len(drawn) == len(read_page(GOAL, PAGE)[1])
    assert playing._chooser().asked == []  # type: ignore[attr-defined]


async def test_teaching_asks_what_playing_asked() -> None:
    weights = Weights(click_option_two=-1.0)
    playing = policy(weights)
    task = Task(id="t", goal=GOAL)
    playing.reset(task)
    steps = tuple([await playing.act(Observation(text=PAGE)) for _ in range(4)])
    taught = [playing.demonstrate(Trajectory(id="a", task=task, steps=steps), i) for i in range(4)]
    assert [str(messages[-1].parts[0]) for messages, _ in taught] == [
        asked for asked, _ in weights.asked
    ]
    assert {answer for _, answer in taught} == {"click option two"}
