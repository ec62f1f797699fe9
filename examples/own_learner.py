"""A custom agent that learns from its attempts: a policy with an attribute `lessons` and a method
`reflect`.

Run: prill reflexion examples/own_environment.py:Counter --goal "Count to 3" \\
         --policy examples/own_learner.py:Patient --judge oracle -o out

A policy that calls a model, such as react, needs only `lessons`. Without `reflect`, prill asks the
model for the lessons.
"""

from prill import Action, Observation, Step, Task, Trajectory, Verdict


class Patient:
    """Counts to one, and one further for each lesson."""

    def __init__(self) -> None:
        self.lessons: list[str] = []

    def reset(self, task: Task) -> None:
        self.left = 1 + len(self.lessons)

    async def act(self, observation: Observation) -> Step:
        self.left -= 1
        return Step(
            observation,
            Action("press", "press +", value="+") if self.left >= 0 else Action("stop", "stop"),
        )

    async def reflect(self, trajectory: Trajectory, verdict: Verdict) -> str:
        return f"{len(trajectory.steps) - 1} was not enough ({verdict.reason}): count one further"
