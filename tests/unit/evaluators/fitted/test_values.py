"""The values that a request asks for, against those that were entered and clicked."""

from __future__ import annotations

import pytest

from prill.evaluators.fitted.features import VALUE_CUES, names, read
from prill.evaluators.fitted.values import describe_values, last_entries, value_spans
from prill.types import Action, Observation, Step, Task, Trajectory


def typed(value: str, field: str = "textbox") -> Action:
    return Action("type", f"type {value}", target=field, value=value)


def click(target: str) -> Action:
    return Action("click", f"click {target}", target=target)


def run(goal: str, *actions: Action) -> Trajectory:
    page = Observation(text="a page")
    steps = tuple(Step(page, action) for action in (*actions, Action("stop", "stop")))
    return Trajectory(id="r", task=Task(id="t", goal=goal), steps=steps, final=page)


@pytest.mark.parametrize(
    ("goal", "values"),
    [
        ("Select Bobine from the list and click Submit.", ["Bobine", "Submit"]),
        ('Enter the username "ada" and the password "x9", then log in.', ["ada", "x9"]),
        ('For the user @leo, click on the "Mute" button.', ["@leo", "Mute"]),
        ("Book it for 12/06/2016. Pay by card.", ["12/06/2016"]),
        ('Find the "Walnut Bookend 2" and open it.', ["Walnut Bookend 2"]),
        ("Mark all messages as read", []),
        ("", []),
    ],
)
def test_values_are_quotations_numbers_and_names(goal: str, values: list[str]) -> None:
    assert [goal[start:end] for start, end in value_spans(goal)] == values


def test_the_last_entry_of_a_field_counts() -> None:
    done = run("g", typed("a"), typed("b", "textbox #2"), typed("c"))
    assert last_entries(done) == {"textbox #2": "b", "textbox": "c"}


GOAL = 'Type "Ada" into the field and press Submit.'
SUBMIT = click('button "Submit"')


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ((typed("Ada"), SUBMIT), "asked for: 'Ada', 'Submit' (all entered or clicked)"),
        (
            (typed("Ada"), typed("Bob"), SUBMIT),
            "asked for: 'Ada' (not entered or clicked; instead: 'Bob')",
        ),
        (
            (typed("Bob"), typed("Ada"), SUBMIT),
            "asked for: 'Ada', 'Submit' (all entered or clicked)",
        ),
        (
            (typed("Ada"), click('button "Cancel"')),
            "asked for: 'Submit' (not entered or clicked; instead: 'Cancel')",
        ),
        ((), "asked for: 'Ada', 'Submit' (not entered or clicked)"),
    ],
)
def test_reasons_name_what_was_expected_and_what_was_there(
    actions: tuple[Action, ...], said: str
) -> None:
    assert describe_values(run(GOAL, *actions)) == said


def test_a_goal_without_values_has_no_sentence() -> None:
    assert describe_values(run("Mark all as read", SUBMIT)) == ""


def test_cues_tell_right_from_wrong_undone_and_unsent() -> None:
    def cues(*actions: Action) -> dict[str, float]:
        numbers = read(run(GOAL, *actions), "student", evidence_only=False).numbers
        named = dict(zip(names("student", False, False), numbers, strict=True))
        return {name.partition("/")[2]: float(named[name]) for name in VALUE_CUES}

    right = cues(typed("Bob"), typed("Ada"), SUBMIT)
    assert right["all in the last entries"] == right["last click named"] == 1
    assert right["entries with others"] == right["entries with words seen nowhere"] == 0
    undone = cues(typed("Ada"), typed("Bob"), SUBMIT)
    assert undone["acted on"] == 1 and undone["all in the last entries"] == 0
    assert undone["entries with others"] == undone["entries with words seen nowhere"] == 1
    unsent = cues(typed("Ada"), click('text "Name"'))
    assert unsent["last click not named"] == 1 and unsent["last click submits"] == 0
    assert right["last click submits"] == 1
