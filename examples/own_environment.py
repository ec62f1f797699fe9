"""A custom environment: any class with `reset`, `step` and `close`. The keyword parameters of the
class are its options.

Run: prill rollout examples/own_environment.py:Counter --goal "Count to 3" \\
         --policy examples/own_policy.py:Add -o out

`--start 1` sets an option. If the class has a method `grade`, prill records the labels too. A class
that takes screenshots has a parameter `images`, the folder for them.
"""

from prill import Action, LabelRecord, Observation, Task, Trajectory


class Counter:
    """A counter that the keys + and - change."""

    platform = "desktop"

    def __init__(self, *, start: int = 0) -> None:
        self.start = self.count = start

    async def reset(self, task: Task) -> Observation:
        self.count = self.start
        return self._look()

    async def step(self, action: Action) -> tuple[Observation, bool]:
        if action.kind == "press":
            self.count += {"+": 1, "-": -1}.get(action.value or "", 0)
        return self._look(), False

    async def close(self) -> None:
        pass

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        reached = trajectory.task.goal == f"Count to {self.count}"
        return LabelRecord(
            id=trajectory.id,
            success=reached,
            source="oracle",
            note=f"the counter shows {self.count}",
        )

    def _look(self) -> Observation:
        return Observation(text=f"The counter shows {self.count}")
