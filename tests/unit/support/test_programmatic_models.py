"""The programs that stand for a model: what they answer to the agents' own prompts, and that their
calls are counted.
"""

from __future__ import annotations

from prill.models.ledger import metered
from prill.papers import StructuredReflection, StructuredSpec
from prill.types import Observation, Task
from tests.support.programmatic.structured import StructuredPlanner

GOAL = "Select Ann, Cy from the scroll list and click Submit."
OPTIONS = "".join(
    f'<option data-wob_ref="{n}">{name}</option>' for n, name in enumerate(("Ann", "Bo", "Cy"), 2)
)
PAGE = (
    f'<div id="area"><select data-wob_ref="1" multiple>{OPTIONS}</select><button '
    'data-wob_ref="5">Submit</button></div>'
)


async def taken(policy: StructuredReflection) -> list[str]:
    """What the policy does on a page that always looks as if the last click had chosen something
    else.
    """
    done = []
    for count in range(5):
        step = await policy.act(
            Observation(
                text=PAGE.replace("multiple", f'multiple id="s{count}"') + f"<p>{count}</p>"
            )
        )
        done.append(step.action.text)
    return done


async def test_several_options_are_clicked_with_ctrl() -> None:
    for planning in ("staged", "iterative"):
        policy = StructuredReflection(StructuredPlanner(), StructuredSpec(planning=planning))
        policy.reset(Task(goal=GOAL))
        said = [text.partition(" (")[0] for text in await taken(policy)]
        assert said == ["hold Control", "click id=2", "click id=4", "release Control", "click id=5"]


async def test_calls_of_programs_are_counted() -> None:
    policy = StructuredReflection(StructuredPlanner())
    policy.reset(Task(goal=GOAL))
    with metered() as meter:
        await policy.act(Observation(text=PAGE))
    assert (
        meter.usage.calls == 1
        and meter.usage.prompt_tokens > 100
        and meter.usage.completion_tokens > 5
    )
