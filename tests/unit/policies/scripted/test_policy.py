"""The scripted policy on page texts, without a browser; that it solves and fails real pages is in
tests/e2e/emulators.
"""

from __future__ import annotations

from prill.policies.miniwob_text import TextPage
from prill.policies.scripted.policy import Behaviour, ScriptedPolicy
from prill.types import Action, Observation, Task

FORM = (
    'text "User \\"name\\""\ntextbox value ""\ntext "Password"\ntextbox #2 value "••" '
    'focused\nbutton "Login"'
)
LOGIN = Task(
    id="login",
    goal='Enter the username "ada" and the password "x9" into the text fields and press login.',
    site="login-user",
)


async def actions(behaviour: Behaviour) -> list[Action]:
    policy = ScriptedPolicy(behaviour)
    policy.reset(LOGIN)
    done: list[Action] = []
    while not done or not done[-1].is_final:
        done.append((await policy.act(Observation(text=FORM))).action)
    return done


def test_page_is_read_into_elements() -> None:
    page = TextPage.read(
        'row\n  text "a \\"b\\" #1"\n  textbox "Tags:" #2 value "x" focused\nbutton "OK"'
    )
    row, text, box, button = page.elements
    assert row.inside == (text, box)
    assert text.name == 'a "b" #1'
    assert (box.target, box.state) == ('textbox "Tags:" #2', 'value "x" focused')
    assert box.is_("focused")
    assert (button.depth, button.inside) == (0, ())


async def test_solve_types_and_submits() -> None:
    assert [(a.kind, a.target, a.value) for a in (await actions("solve"))[:-1]] == [
        ("type", "textbox", "ada"),
        ("type", "textbox #2", "x9"),
        ("click", 'button "Login"', None),
    ]


async def test_stop_early_leaves_a_field_empty() -> None:
    first, stop = await actions("stop-early")
    assert first == (await actions("solve"))[0]
    assert stop.value == "I stopped before the task was finished."


async def test_false_claim_did_nothing() -> None:
    look, stop = await actions("false-claim")
    assert look.kind == "scroll"
    assert stop.value is not None
    assert "complete" in stop.value or "Done" in stop.value
