"""An environment of your own around a real application: Trac, an issue tracker, with five tasks.

    python3 -m venv trac && trac/bin/pip install Trac 'setuptools<81'
    prill rollout examples/sites/trac/site.py:Trac --tasks examples/sites/trac/tasks.jsonl \\
        --programs trac/bin --policy examples/sites/trac/solved.py:Solved -o runs/trac

Each worker seeds a project once. Before an episode it ends the server, copies the seeded database
over the one that was played on, and starts the server again. The oracle asks the database.
"""

import asyncio
import contextlib
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.request import ProxyHandler, build_opener

from prill import EnvironmentFailedError, LabelRecord, Observation, Task, Trajectory
from prill.emulators.browser.chromium import Chromium
from prill.emulators.browser.environment import BrowserEnvironment, PageSpec

SEED = Path(__file__).with_name("seed.sql")
# The ticket that a task is about, and what the database returns once the task is done.
ORACLE = {
    "report": (4, "SELECT 1 FROM ticket WHERE id = 4 AND summary = 'Search ignores accents' "
               "AND component = 'search' AND priority = 'critical'"),
    "close": (2, "SELECT 1 FROM ticket JOIN ticket_change ON ticket = id WHERE id = 2 AND "
              "resolution = 'fixed' AND field = 'comment' AND newvalue = 'Fixed in 2.1'"),
    "rename": (3, "SELECT 1 FROM ticket WHERE id = 3 AND "
               "summary = 'Export fails for large projects'"),
    "wiki": (0, "SELECT 1 FROM wiki WHERE name = 'Minutes' AND version = 1 AND "
             "text = 'We meet on Mondays.'"),
    "count": (0, "SELECT 1 FROM ticket WHERE component = 'export' AND status <> 'closed' "
              "GROUP BY component HAVING count(*) = CAST(:answer AS INTEGER)"),
}  # fmt: skip
OTHERS = "SELECT id, status, summary, owner, component, priority FROM ticket WHERE id <> :id"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracSpec(PageSpec):
    """Options of the environment, in addition to those of the browser."""

    programs: Annotated[Path, "folder with Trac's programs trac-admin and tracd"] = Path("trac/bin")


class Trac(BrowserEnvironment):
    """A project in Trac that starts every episode with the same three tickets."""

    platform = "web"

    def __init__(self, images: Path, spec: TracSpec = TracSpec()) -> None:
        with contextlib.closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        # The agent sees the same address in every run, and reaches no other one.
        rules = f"MAP trac.localhost:80 127.0.0.1:{self._port}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        self._chromium = Chromium(arguments=("--no-proxy-server", f"--host-resolver-rules={rules}"))
        super().__init__(images, spec, browser=self._chromium)
        self._programs = spec.programs
        self._folder = tempfile.TemporaryDirectory(prefix="prill-trac-")
        self._project = Path(self._folder.name, "project")
        self._seeded, self._played = self._project / "db/seeded.db", self._project / "db/trac.db"
        self._server: subprocess.Popen[bytes] | None = None  # ends when its input closes

    async def reset(self, task: Task) -> Observation:
        """Restores the database, starts the server and opens the task's page."""
        await self.finish()
        await asyncio.to_thread(self._restart)
        return await super().reset(task)

    async def grade(self, trajectory: Trajectory) -> LabelRecord:
        """Asks the database whether the task is done, and whether another ticket has changed."""
        if trajectory.error is not None:
            return LabelRecord(id=trajectory.id, success=None, note="ended with an error")
        ticket, query = ORACLE[trajectory.task.id]
        done = bool(_ask(self._played, query, answer=trajectory.answer))
        before, now = (_ask(file, OTHERS, id=ticket) for file in (self._seeded, self._played))
        note = ("done" if done else "not done") + ("" if now == before else ", other changes")
        success = done and now == before
        return LabelRecord(id=trajectory.id, success=success, source="oracle", note=note)

    async def close(self) -> None:
        """Ends browser and server, and deletes the project."""
        await super().close()
        await self._chromium.close()
        if self._server is not None:
            self._server.communicate()
        self._folder.cleanup()

    def _restart(self) -> None:
        if self._server is not None:
            self._server.communicate()
        if not self._seeded.exists():
            self._create()
        shutil.copy(self._seeded, self._played)
        shutil.rmtree(self._project / "files", ignore_errors=True)  # attachments
        address = ["--hostname", "127.0.0.1", "--port", str(self._port)]
        command = [self._programs / "tracd", *address, "--single-env", self._project]
        log = self._project / "log/tracd.log"
        with log.open("wb") as out:
            # The shell's input closes whenever this process ends, also by kill -9.
            self._server = subprocess.Popen(
                ["sh", "-c", '"$@" & cat > /dev/null; kill $!; wait', "sh", *command],
                stdin=subprocess.PIPE, stdout=out, stderr=out,
            )  # fmt: skip
        for _ in range(300):
            with contextlib.suppress(OSError):
                url = f"http://127.0.0.1:{self._port}/about"
                return build_opener(ProxyHandler({})).open(url).close()
            time.sleep(0.1)
        raise EnvironmentFailedError(f"tracd does not answer: {log.read_text()[-500:]}")

    def _create(self) -> None:
        command = [self._programs / "trac-admin", self._project, "initenv", "Demo"]
        try:
            subprocess.run([*command, "sqlite:db/trac.db"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise EnvironmentFailedError(f"trac-admin failed, see --programs: {error}") from error
        with contextlib.closing(sqlite3.connect(self._played)) as base:
            base.executescript(SEED.read_text("utf-8"))
        shutil.copy(self._played, self._seeded)


def _ask(file: Path, query: str, **values: object) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(file)) as base:
        return base.execute(query, values).fetchall()
