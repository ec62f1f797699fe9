"""A custom judge as a class: success if the last page contains a phrase.

Run: prill score t.jsonl -o v.jsonl --judge examples/own_judge.py:PhraseJudge \\
         --judge.phrase 'order placed'
"""

from collections.abc import Sequence
from dataclasses import dataclass

from prill import EvaluatorInfo, Trajectory, Verdict


@dataclass(frozen=True)
class PhraseJudge:
    # an option: --judge.phrase, a key in a judge file, a keyword of prill.judge
    phrase: str = "thank you"

    @property
    def info(self) -> EvaluatorInfo:  # increase the version when the verdicts change
        return EvaluatorInfo("phrase", "1", params={"phrase": self.phrase})

    def screenshots(self, trajectory: Trajectory) -> Sequence[str]:
        return ()  # the image files that the judge reads

    async def __call__(self, trajectory: Trajectory) -> Verdict:
        text = trajectory.observations[-1].text if trajectory.observations else None
        if text is None:
            return Verdict(
                id=trajectory.id, unscored="no_evidence", reason="no text", evaluator=self.info
            )
        success = self.phrase.lower() in text.lower()
        return Verdict(id=trajectory.id, success=success, score=float(success), evaluator=self.info)
