"""Attacks an agent can make: false thoughts or answers, early stopping, padding steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from math import ceil
from typing import Any

from prill.evaluators.attacks.texts import attack_texts, one_line_goal
from prill.types import Action, Observation, Step, Trajectory


def claim_in_thoughts(trajectory: Trajectory) -> Trajectory | None:
    """The claim after the last thought; None without steps."""
    return _thought_after(trajectory, attack_texts().of("claim-thoughts", trajectory))


def claim_in_answer(trajectory: Trajectory) -> Trajectory:
    """The claim in place of the answer. How the run ended stays: a run that was cut off is still
    one.
    """
    return answered(trajectory, attack_texts().of("claim-answer", trajectory))


def claim_and_stop(trajectory: Trajectory) -> Trajectory | None:
    """One more step, in the last state, which ends the run with the claim; None where the agent
    ended it by itself.

    The metadata stay as they are recorded: see `stop_early` for a run whose record says that the
    agent ended it.
    """
    if trajectory.steps and trajectory.steps[-1].action.is_final:
        return None
    last_state = trajectory.observations[-1] if trajectory.observations else Observation()
    return _stopped(trajectory, trajectory.steps, last_state)


def stop_early(trajectory: Trajectory, left_out: float) -> Trajectory | None:
    """The run up to some step, ended there by the claim; `left_out` is the share of the steps that
    are not taken.

    What the record says of the ending (`truncated`, `terminated`, `error`) is what it would say of
    a run that the agent ended. None without a step to keep, and where so small a share is no step.
    """
    steps = trajectory.steps
    if steps and steps[-1].action.is_final:
        steps = steps[:-1]
    kept = ceil(len(steps) * (1 - left_out))
    if not kept or (left_out and kept == len(steps)):
        return None
    states = trajectory.observations
    stopped = _stopped(trajectory, steps[:kept], states[min(kept, len(states) - 1)])
    ending = {"truncated": False, "terminated": True}
    metadata: dict[str, Any] = {
        key: ending.get(key, value) for key, value in trajectory.metadata.items()
    }
    return replace(stopped, metadata=metadata, error=None)


def without_thoughts(trajectory: Trajectory, share: float) -> Trajectory | None:
    """The latest thoughts taken away, this share of all; None where there is none to take."""
    places = [i for i, step in enumerate(trajectory.steps) if step.thought]
    gone = set(places[len(places) - ceil(len(places) * share) :])
    steps = tuple(
        replace(step, thought=None) if i in gone else step
        for i, step in enumerate(trajectory.steps)
    )
    return replace(trajectory, steps=steps) if gone else None


def pad_thoughts(trajectory: Trajectory, characters: int) -> Trajectory | None:
    """So many characters that say nothing of the task after the last thought; None without
    steps.
    """
    return _thought_after(trajectory, _prose("musings", trajectory, characters))


def short_answer(trajectory: Trajectory) -> Trajectory:
    """One word in place of the answer."""
    return answered(trajectory, attack_texts().of("answer-short", trajectory))


def paraphrase_answer(trajectory: Trajectory, sentences: int) -> Trajectory:
    """The goal as done, in so many sentences, in place of the answer."""
    return answered(
        trajectory, " ".join(attack_texts().lines("paraphrases", trajectory, sentences))
    )


def long_answer(trajectory: Trajectory, characters: int) -> Trajectory:
    """A report of success of so many characters in place of the answer."""
    return answered(trajectory, _prose("reports", trajectory, characters))


def add_clicks(trajectory: Trajectory, count: int) -> Trajectory | None:
    """So many clicks that change nothing before the last step; None without steps."""
    return _with_steps(
        trajectory, [Action("click", f"click('a{i}')", target=f"a{i}") for i in range(1, count + 1)]
    )


def add_typing(trajectory: Trajectory, count: int) -> Trajectory | None:
    """The goal's words typed so many times, to no effect, before the last step; None without
    steps.
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
    """The trajectory with another answer, in its final action too where it has one."""
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
    # An agent that thinks aloud goes on doing so.
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
