"""An agent for a small model. Its prompts have a hundred tokens, where `react` sends a thousand,
and its only action is a click.

Run: prill reflexion miniwob --tasks click-test --policy examples/brief_actor.py:Brief \\
         --model embedded --judge oracle -o o

`--model` sets the parameter `model`. `prill reflexion` requires the attribute `lessons`. Without a
method `reflect`, prill would ask the same model for lessons with a long prompt, which a very small
model cannot answer.
"""

from prill import Action, Observation, Step, Task, Trajectory, Verdict
from prill.models import LanguageModel, Message, WordFormat


class Brief:
    """Shows the lines of a page with numbers and clicks the line that the model chooses."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.lessons: list[str] = []

    def reset(self, task: Task) -> None:
        self.goal = task.goal

    async def act(self, observation: Observation) -> Step:
        memory = "".join(f"Earlier you noted: {lesson[:200]}\n" for lesson in self.lessons)
        line = await self._choose(
            observation, f"{memory}Task: {self.goal}\nWhich line is to be clicked?"
        )
        return Step(observation, Action("click", f"click {line}", target=line))

    async def reflect(self, trajectory: Trajectory, verdict: Verdict) -> str:
        last = trajectory.steps[-1]
        said = f"You clicked {last.action.target}. {verdict.reason[:200]}"
        line = await self._choose(
            last.observation, f"Task: {trajectory.task.goal}\n{said}\nWhich line would be better?"
        )
        return f"After {last.action.target}, {line} is worth a try."

    async def _choose(self, observation: Observation, question: str) -> str:
        """Returns the line of the page that the model chose."""
        lines = (observation.text or "an empty page").splitlines()
        page = "\n".join(f"{number}: {line.strip()}" for number, line in enumerate(lines, 1))
        form = WordFormat("line", tuple(map(str, range(1, len(lines) + 1))))
        reply = await self.model.complete(
            [Message("user", (f"Page:\n{page}\n{question}",))], form=form, max_tokens=16
        )
        return lines[int(reply.fields["line"]) - 1].strip()
