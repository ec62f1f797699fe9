"""The tasks' solutions as a policy: if they fail, the environment or its oracle is wrong. A step is
a kind of action, the start of the element's line in the observation, and a value.
"""

import re

from prill import Action, Observation, Step, Task

SOLUTIONS = {
    "report": [
        ("type", "textbox 'Summary:'", "Search ignores accents"),
        ("select", "combobox 'Priority:'", "critical"),
        ("select", "combobox 'Component:'", "search"),
        ("click", "button 'Create ticket'", ""),
    ],
    "close": [
        ("click", "link 'Login page is blank'", ""),
        ("type", "textbox 'You may use WikiFormatting here.'", "Fixed in 2.1"),
        ("click", "link 'Modify Ticket'", ""),
        ("click", "radio 'resolve'", ""),
        ("click", "button 'Submit changes'", ""),
    ],
    "rename": [
        ("click", "link 'Modify Ticket'", ""),
        ("click", "textbox 'Summary:'", ""),
        ("press", "", "Control+a"),
        ("type", "", "Export fails for large projects"),
        ("click", "button 'Submit changes'", ""),
    ],
    "wiki": [
        ("click", "button 'Create this page'", ""),
        ("type", "textbox '' focused: True", "We meet on Mondays."),
        ("click", "button 'Submit changes'", ""),
    ],
    "count": [("select", "combobox 'And'", "Component"), ("stop", "", "2")],
}


class Solved:
    """Plays the solution of each task."""

    def reset(self, task: Task) -> None:
        self.steps = [*SOLUTIONS[task.id], ("stop", "", "")]

    async def act(self, observation: Observation) -> Step:
        kind, element, value = self.steps[0]
        found = re.search(rf"\[(\d+)\] {re.escape(element)}", observation.text or "")
        if not found:
            return Step(observation, Action("wait", "wait"))  # the page may still be loading
        del self.steps[:1]
        target, text = found[1] if element else None, f"{kind} {element} {value}".strip()
        return Step(observation, Action(kind, text, target=target, value=value))
