"""The questions of a described judge `ask`, for people to answer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from prill.config.registry import list_options, read_options
from prill.config.toml import read_table
from prill.config.values import get_name
from prill.errors import UsageError
from prill.evaluators.ask import AskJudge, AskSpec, Question
from prill.evaluators.registry import DESCRIPTIONS, JudgeConfig, JudgeLike


def judge_questions(judge: JudgeLike) -> tuple[Question, ...]:
    """Returns the questions of the judge `ask`, a table, a configuration, or a .toml or .json file,
    without making the judge or its model.

    Raises UsageError if it is another judge, an option is invalid, or a question is there twice.
    """
    if isinstance(judge, AskJudge):
        questions = judge.spec.checked_questions()
    else:
        described, place = JudgeConfig.read(judge), ""
        if isinstance(described, JudgeConfig) and described.name.endswith(DESCRIPTIONS):
            place = f"{described.name}: "
            table = {**read_table(Path(described.name)), **described.options}
            described = JudgeConfig.read(table)
        if not isinstance(described, JudgeConfig) or described.name != "ask":
            raise UsageError(
                f"{place}judge {get_name(described)!r} asks no questions; expected the judge ask",
                parameters=("judge",),
            )
        names = list_options(AskSpec)
        given = {name: value for name, value in described.options.items() if name in names}
        spec = AskSpec(**read_options(AskSpec, given, "judge 'ask'", place=place))
        questions = spec.checked_questions()
    texts = Counter(question.text for question in questions)
    if twice := [text for text, count in texts.items() if count > 1]:
        raise UsageError(f"the question {twice[0]!r} is asked twice", parameters=("judge",))
    return questions
