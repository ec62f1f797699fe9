"""Which of the 45 MiniWoB++ tasks of SteP (arXiv 2310.03720) the policy `step` solves with a model that answers by program.

Run: python benchmarks/step_miniwob.py [--seeds 3] [--flat] [TASK …]
It shows that machine, library and environment carry the tasks that a good model could do; of models it says nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from prill.emulators.miniwob.environment import MiniWoB
from prill.loop import rollout
from prill.policies.step.agent import StepAgent, StepSpec
from prill.testing.programmatic.step import ProgrammaticStep

_NAMES = """
click-link click-option focus-text click-button click-button-sequence click-dialog click-dialog-2 click-tab click-test
click-test-2 enter-text focus-text-2 enter-text-dynamic enter-password login-user click-pie enter-date grid-coordinate
click-widget email-inbox email-inbox-nl-turk email-inbox-forward-nl-turk multi-orderings choose-date
click-collapsible-2 simple-arithmetic click-tab-2 click-tab-2-hard multi-layouts copy-paste click-collapsible
choose-date-easy copy-paste-2 simple-algebra click-checkboxes click-checkboxes-transfer login-user-popup
click-checkboxes-soft enter-text-2 email-inbox-forward-nl search-engine find-word choose-date-medium
click-checkboxes-large book-flight
"""
TASKS = _NAMES.split()


async def main() -> None:
    """Plays the tasks one after another and prints a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=TASKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--flat", action="store_true")
    args = parser.parse_args()
    whole = 0
    with tempfile.TemporaryDirectory() as folder:
        environment = MiniWoB(Path(folder), text="html", timeout=300)
        for name in args.tasks:
            won, actions, calls, problem = 0, 0, 0, ""
            for seed in range(args.seeds):
                model = ProgrammaticStep()
                task = await environment.task(name, seed)
                agent = StepAgent(model, StepSpec(flat=args.flat))
                played = await rollout(agent, environment, task, id=f"{name}-{seed}")
                success = bool((await environment.grade(played)).success)
                won, actions, calls = won + success, actions + len(played.steps), calls + model.calls
                if not success:
                    problem = f"  seed {seed}: {task.goal[:60]!r}; {played.steps[-1].thought or played.error}"[:200]
            whole += won == args.seeds
            counts = f"{won}/{args.seeds}  actions {actions / args.seeds:5.2f}  calls {calls / args.seeds:5.2f}"
            print(f"{name:28} {counts}{problem}", flush=True)
        await environment.close()
    print(f"{whole} of {len(args.tasks)} tasks solved with every seed")


if __name__ == "__main__":
    asyncio.run(main())
