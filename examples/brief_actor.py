"""An agent for a small model: prompts of a hundred tokens where `react` sends a thousand, and a
click as its only action.

Run: prill reflexion miniwob --tasks click-test --policy examples/brief_actor.py:Brief --model
embedded --judge oracle -o o `--model` fills the parameter `model`. The list `lessons` is what
`prill reflexion` asks for. Without a method `reflect`, the same model would be asked for them at
length, and a very small one does not come to an end.
"""

from prill import Action, Observation, Step, Task, Trajectory, Verdict
from prill.models import LanguageModel, Message, WordFormat


class Brief:
    """Shows the lines of a page with numbers, and clicks on the one that the model chooses."""

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
        """The line of the page that the model names."""
        lines = (observation.text or "an empty page").splitlines()
        page = "\n".join(f"{number}: {line.strip()}" for number, line in enumerate(lines, 1))
        form = WordFormat("line", tuple(map(str, range(1, len(lines) + 1))))
        reply = await self.model.complete(
            [Message("user", (f"Page:\n{page}\n{question}",))], form=form, max_tokens=16
        )
        return lines[int(reply.fields["line"]) - 1].strip()
