"""A custom policy that calls a model and can be trained on its own attempts. `demonstrate` returns
the same request as `act`.

Run: prill filter t.jsonl --verdicts v.jsonl -o rows --policy examples/taught_policy.py:Pointer
Then: prill train policy rows/sft.jsonl -o adapter
And: prill rollout … --policy examples/taught_policy.py:Pointer \\
         --model local:MODEL --model.adapter adapter
"""

from collections.abc import Sequence

from prill import Action, NoEvidenceError, Observation, Step, Task, Trajectory, UnparsableError
from prill.protocols import LanguageModel, Message

QUESTION = "Goal: {goal}\n\nThe page:\n{page}\n\nRepeat the line to click."


class Pointer:
    """Clicks the line that the model repeats."""

    def __init__(self, model: LanguageModel | None = None, *, max_tokens: int = 32) -> None:
        self.model = model  # None: the policy can only demonstrate
        self.max_tokens = max_tokens

    def reset(self, task: Task) -> None:
        self.goal = task.goal

    async def act(self, observation: Observation) -> Step:
        if self.model is None:
            raise RuntimeError("this policy was made without a model")
        reply = await self.model.complete(
            question(self.goal, observation), max_tokens=self.max_tokens
        )
        line = reply.text.strip()
        return Step(observation, Action("click", f"click {line}", target=line))

    def demonstrate(self, trajectory: Trajectory, index: int) -> tuple[Sequence[Message], str]:
        """Returns the request that `act` would have sent at that step, and the answer that leads to
        the recorded action.
        """
        step = trajectory.steps[index]
        if step.action.kind != "click" or not step.action.target:
            raise UnparsableError(f"step {index} clicks nothing: {step.action.kind}")
        return question(trajectory.task.goal, step.observation), step.action.target


def question(goal: str, observation: Observation) -> list[Message]:
    """Returns the messages for both `act` and `demonstrate`, so that training and inference
    match.
    """
    if not observation.text:
        raise NoEvidenceError("the page was recorded without its text")
    return [Message("user", (QUESTION.format(goal=goal, page=observation.text),))]
