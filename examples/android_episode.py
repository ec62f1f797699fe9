"""Records one episode on an Android phone or emulator that adb can reach, with a few scripted
actions instead of an agent.

Run: .venv/bin/python examples/android_episode.py OUT [SERIAL] [APPIUM_URL]
Without APPIUM_URL it uses adb only. Without a phone, start a fake one in the root of the
repository: `python -m tests.support.android --port 5038`. Then set ANDROID_ADB_SERVER_PORT=5038.
"""

import asyncio
import sys
from pathlib import Path

from prill import Action, Observation, Step, Task, run_episode, write_trajectories
from prill.emulators import Android, AndroidSpec


class LookAtSettings:
    """A policy: any class with `reset` and `act` is a policy."""

    def reset(self, task: Task) -> None:
        self.left = [
            Action("scroll", value="down"),
            Action("scroll", value="up"),
            Action("home"),
            Action("stop"),
        ]

    async def act(self, observation: Observation) -> Step:
        return Step(observation, self.left.pop(0))


async def main(out: Path, serial: str | None, appium: str | None) -> None:
    spec = (
        AndroidSpec(device=serial, backend="appium", appium_url=appium)
        if appium
        else AndroidSpec(device=serial)
    )
    environment = Android(out / "images", spec)
    task = Task(
        goal="Look at the settings", platform="android", start_url="app:com.android.settings"
    )
    try:
        trajectory = await run_episode(
            LookAtSettings(), environment, task, id="settings", agent="script"
        )
    finally:
        await environment.close()
    for step in trajectory.steps:
        elements = (step.observation.text or "").splitlines()
        action = f"{step.action.kind} {step.action.value or ''}".strip()
        print(f"{len(elements)} elements, {elements[0] if elements else 'no tree'} -> {action}")
    write_trajectories(out / "trajectories.jsonl", [trajectory])
    print(trajectory.error or f"written to {out / 'trajectories.jsonl'}")


if __name__ == "__main__":
    folder, serial, appium = [*sys.argv[1:], None, None, None][:3]
    if folder is None:
        sys.exit("say where to: android_episode.py OUT [SERIAL] [APPIUM_URL]")
    asyncio.run(main(Path(folder), serial, appium))
