"""A custom policy: any class with `reset` and `act`. The keyword parameters of the class are its
options.

Run: prill rollout miniwob --tasks click-button --policy examples/own_policy.py:ClickNamed -o out
"""

from prill import Action, Observation, Step, Task


class ClickNamed:
    """Clicks the first element whose line contains the quoted name in the goal, then stops."""

    def __init__(self, *, role: str = "button") -> None:
        self.role = role

    def reset(self, task: Task) -> None:
        self.wanted = task.goal.partition('"')[2].partition('"')[0]

    async def act(self, observation: Observation) -> Step:
        lines = (line.strip() for line in (observation.text or "").splitlines())
        line = next(
            (line for line in lines if line.startswith(f'{self.role} "{self.wanted}"')), None
        )
        if line is None:
            return Step(observation, Action("stop", "stop", value="nothing here has that name"))
        return Step(observation, Action("click", f"click {line}", target=line))


class Add:
    """Adds one until the counter shows the goal's number. For examples/own_environment.py."""

    def reset(self, task: Task) -> None:
        self.wanted = task.goal.split()[-1]

    async def act(self, observation: Observation) -> Step:
        done = observation.text == f"The counter shows {self.wanted}"
        return Step(
            observation,
            Action("stop", value=self.wanted) if done else Action("press", "press +", value="+"),
        )
