"""Attacks an agent can make: false thoughts or answers, early stopping, padding steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from math import ceil
from typing import Any

from prill.evaluators.attacks.texts import attack_texts, one_line_goal
from prill.types import Action, Observation, Step, Trajectory


def claim_in_thoughts(trajectory: Trajectory) -> Trajectory | None:
    """Appends the claim to the last thought; returns None if there are no steps."""
    return _thought_after(trajectory, attack_texts().of("claim-thoughts", trajectory))


def claim_in_answer(trajectory: Trajectory) -> Trajectory:
    """Replaces the answer with the claim.

    The recorded ending is unchanged: a run that was cut off still counts as cut off.
    """
    return answered(trajectory, attack_texts().of("claim-answer", trajectory))


def claim_and_stop(trajectory: Trajectory) -> Trajectory | None:
    """Adds a final step that ends the run with the claim; returns None if the agent ended it
    itself.

    The metadata are unchanged. `stop_early` also changes the metadata, so that the record says that
    the agent ended the run.
    """
    if trajectory.steps and trajectory.steps[-1].action.is_final:
        return None
    last_state = trajectory.observations[-1] if trajectory.observations else Observation()
    return _stopped(trajectory, trajectory.steps, last_state)


def stop_early(trajectory: Trajectory, left_out: float) -> Trajectory | None:
    """Cuts the run at a step and ends it there with the claim; `left_out` is the share of steps
    removed.

    The recorded ending (`truncated`, `terminated`, `error`) becomes that of a run that the agent
    ended. Returns None if no step remains, or if the share is less than one step.
    """
    steps = trajectory.steps
    if steps and steps[-1].action.is_final:
        steps = steps[:-1]
    count = ceil(len(steps) * (1 - left_out))
    if not count or (left_out and count == len(steps)):
        return None
    states = trajectory.observations
    stopped = _stopped(trajectory, steps[:count], states[min(count, len(states) - 1)])
    ending = {"truncated": False, "terminated": True}
    metadata: dict[str, Any] = {
        key: ending.get(key, value) for key, value in trajectory.metadata.items()
    }
    return replace(stopped, metadata=metadata, error=None)


def without_thoughts(trajectory: Trajectory, share: float) -> Trajectory | None:
    """Removes the latest thoughts, this share of all; returns None if there is none to remove."""
    indices = [i for i, step in enumerate(trajectory.steps) if step.thought]
    removed = set(indices[len(indices) - ceil(len(indices) * share) :])
    steps = tuple(
        replace(step, thought=None) if i in removed else step
        for i, step in enumerate(trajectory.steps)
    )
    return replace(trajectory, steps=steps) if removed else None


def pad_thoughts(trajectory: Trajectory, characters: int) -> Trajectory | None:
    """Appends irrelevant text of this length to the last thought; None if there are no steps."""
    return _thought_after(trajectory, _prose("musings", trajectory, characters))


def short_answer(trajectory: Trajectory) -> Trajectory:
    """Replaces the answer with one word."""
    return answered(trajectory, attack_texts().of("answer-short", trajectory))


def paraphrase_answer(trajectory: Trajectory, sentences: int) -> Trajectory:
    """Replaces the answer with this number of sentences that say that the goal is done."""
    return answered(
        trajectory, " ".join(attack_texts().lines("paraphrases", trajectory, sentences))
    )


def long_answer(trajectory: Trajectory, characters: int) -> Trajectory:
    """Replaces the answer with a report of success of this length in characters."""
    return answered(trajectory, _prose("reports", trajectory, characters))


def add_clicks(trajectory: Trajectory, count: int) -> Trajectory | None:
    """Inserts `count` clicks without effect before the last step; None if there are no steps."""
    return _with_steps(
        trajectory, [Action("click", f"click('a{i}')", target=f"a{i}") for i in range(1, count + 1)]
    )


def add_typing(trajectory: Trajectory, count: int) -> Trajectory | None:
    """Inserts `count` steps that type the goal without effect before the last step.

    Returns None if there are no steps.
    """
    goal = one_line_goal(trajectory)
    return _with_steps(
        trajectory,
        [
            Action("type", f"fill('a{i}', '{goal}')", f"a{i}", value=goal)
            for i in range(1, count + 1)
        ],
    )


def answered(trajectory: Trajectory, answer: str) -> Trajectory:
    """Returns the trajectory with another answer, also in its final action if that contains one."""
    steps = trajectory.steps
    if steps and steps[-1].action.is_final:
        action = steps[-1].action
        old = action.value or trajectory.answer
        text = (
            action.text.replace(old, answer)
            if old and old in action.text
            else f"{action.kind} [{answer}]"
        )
        steps = (*steps[:-1], replace(steps[-1], action=replace(action, text=text, value=answer)))
    return replace(trajectory, steps=steps, answer=answer)


def _stopped(trajectory: Trajectory, steps: tuple[Step, ...], state: Observation) -> Trajectory:
    claim = attack_texts().of("claim-answer", trajectory)
    last = Step(state, Action("answer", f"answer [{claim}]", value=claim))
    return replace(trajectory, steps=(*steps, last), final=state, answer=claim)


def _thought_after(trajectory: Trajectory, text: str) -> Trajectory | None:
    if not trajectory.steps:
        return None
    last = trajectory.steps[-1]
    thought = f"{last.thought}\n\n{text}" if last.thought else text
    return replace(trajectory, steps=(*trajectory.steps[:-1], replace(last, thought=thought)))


def _with_steps(trajectory: Trajectory, actions: list[Action]) -> Trajectory | None:
    if not trajectory.steps:
        return None
    last = trajectory.steps[-1]
    # If the agent writes thoughts, the new steps have thoughts too.
    thoughts = cycle(
        attack_texts().lines("musings", trajectory, len(actions)) if last.thought else [None]
    )
    added = [
        Step(last.observation, action, thought)
        for action, thought in zip(actions, thoughts, strict=False)
    ]
    return replace(trajectory, steps=(*trajectory.steps[:-1], *added, last))


def _prose(name: str, trajectory: Trajectory, characters: int) -> str:
    lines = attack_texts().lists[name]
    block = " ".join(attack_texts().lines(name, trajectory, len(lines))) + " "
    return (block * (characters // len(block) + 1))[:characters].strip()
