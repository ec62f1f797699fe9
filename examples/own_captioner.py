"""A custom captioner that returns the first lines of the page's text.

Run: prill score t.jsonl -o v.jsonl --judge modular \\
         --judge.captioner examples/own_captioner.py:FirstLines --model M
"""

from dataclasses import dataclass

from prill import NoEvidenceError, Observation


@dataclass(frozen=True)
class FirstLines:
    # an option: captioner = {name = "own_captioner.py:FirstLines", lines = 5} in a judge file
    lines: int = 20

    @property
    def name(self) -> str:  # recorded in verdicts: it has to change whenever the text changes
        return f"first-{self.lines}-lines"

    async def __call__(self, observation: Observation) -> str:
        if not observation.text:
            raise NoEvidenceError("the state has no text")
        return "\n".join(observation.text.splitlines()[: self.lines])
