"""Makes training rows for a planner of Self-MAP with `prill train policy`: half with the memory of
earlier turns, half without.

Run: python examples/self_map/rows.py RANKED.jsonl ROWS.jsonl --rows 480 --seed 0 \\
         --set group=5 --set pool=5 …

RANKED holds gold turns with ranked candidates (`prill papers rank --ranked`). The wrong candidates
of a row are among the best of its page, as they are at inference. Each seed draws other steps.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from prill.io.outputs import write_output
from prill.io.store import iter_trajectories
from prill.papers.mind2web.pages.state import read_state, rejoined
from prill.policies.registry import make_policy
from prill.testing import ScriptedModel
from prill.types import Trajectory

BEST = 6  # number of candidates of a page that a row draws from


def turns(ranked: Path) -> Iterator[Trajectory]:
    """Yields the turns, with only the best candidates and the right one."""
    for turn in iter_trajectories(ranked):
        steps = []
        for step in turn.steps:
            state = read_state(step.observation.text or "")
            right = {*(step.action.target or "").split()}
            kept = [
                one for place, one in enumerate(state.candidates) if place < BEST or one in right
            ]
            text = replace(state, candidates=tuple(kept)).text()
            steps.append(replace(step, observation=replace(step.observation, text=text)))
        yield replace(turn, steps=tuple(steps))


def row(teacher: Any, turn: Trajectory, index: int, draw: int) -> dict[str, Any]:
    """Returns the agent's request at a step and the right answer, in TRL's format."""
    messages, answer = teacher.demonstrate(turn, index, draw=draw)
    prompt = [
        {"role": message.role, "content": "".join(map(str, message.parts))} for message in messages
    ]
    where = {"task": turn.task.id, "trajectory": turn.id, "step": index}
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": answer}], **where}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ranked", type=Path, metavar="RANKED.jsonl")
    parser.add_argument("rows", type=Path, metavar="ROWS.jsonl")
    parser.add_argument(
        "--rows", type=int, default=480, dest="count", help="how many (default: 480)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="another seed draws other steps (default: 0)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="an option of self-map"
    )
    options = parser.parse_args()
    settings = dict(one.split("=", 1) for one in options.set)
    teachers = [
        make_policy("self-map", model=ScriptedModel([]), lax=True, **settings, history=history)
        for history in ("matched", "none")
    ]
    drawn = [
        (turn, index)
        for turn in rejoined(turns(options.ranked))
        for index in range(len(turn.steps))
    ]
    random = Random(options.seed)
    random.shuffle(drawn)
    if len(drawn) < options.count:
        raise SystemExit(
            f"{options.ranked} has {len(drawn)} steps, fewer than {options.count}: generate more "
            "conversations"
        )
    rows = [
        row(teachers[number % 2], *one, options.seed)
        for number, one in enumerate(drawn[: options.count])
    ]
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    write_output(options.rows, "".join(json.dumps(one) + "\n" for one in rows).encode())


if __name__ == "__main__":
    main()
