"""Configuration of the Mind2Web environment: recorded turns of conversations on websites, step by
step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from prill.emulators.settings import EnvironmentConfig, Playing, Setting
from prill.emulators.task_source import Names, join_names, task_names
from prill.errors import UsageError
from prill.io.kinds import TRAJECTORIES
from prill.papers.mind2web.environment import Mind2Web, Mind2WebSpec, Recordings
from prill.papers.mind2web.pages.steps import Marking, Match, Scheme


@dataclass(frozen=True, kw_only=True)
class Mind2WebConfig(EnvironmentConfig):
    """Recorded turns as an environment: `Mind2WebConfig(recordings=["test.jsonl"])`. The recording
    continues regardless of the agent's actions.
    """

    name: ClassVar[str] = "mind2web"
    usual_steps: ClassVar[int] = 1000  # maximum of an episode, which ends with the recording
    stops_early: ClassVar[bool] = False

    tasks: Annotated[Names, Meta(description="Recorded turns by id, or all.")] = "all"
    recordings: Annotated[
        str | Path | Sequence[str | Path],
        Meta(
            description="Files or folders of recorded turns ([SPLIT=]PATH,…), with their "
            "split of the data."
        ),
    ] = ()
    within: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(
            description="Number of best candidates among which the target must be; else "
            "the step is lost (default: from the policy's paper)."
        ),
    ] = None
    lost: Annotated[
        Literal["hidden", "shown"],
        Meta(
            description="What is shown of a lost step: no candidates, so that no model is "
            "called, or all the same."
        ),
    ] = "hidden"
    scheme: Annotated[
        Scheme | None,
        Meta(
            description="Scoring of steps: as in MindAct in one of two forms, or as in "
            "Synapse (default: the policy's)."
        ),
    ] = None
    step_match: Annotated[
        Match | None,
        Meta(
            description="With Synapse's scoring: a step is correct if its parsed action "
            "is, or if its text is equal."
        ),
    ] = None

    def check(self) -> None:
        """Converts names and files to text."""
        object.__setattr__(self, "tasks", join_names(self.tasks))
        if isinstance(self.recordings, list | tuple):
            object.__setattr__(self, "recordings", ",".join(map(str, self.recordings)))

    def files(self) -> dict[Path, str]:
        """Returns the files of recordings.

        Returns:
            Each file with the name of its split, or the file's own name if no split is given.

        Raises:
            UsageError: No file is named, or one is named twice.
        """
        found: dict[Path, str] = {}
        for word in (part.strip() for part in str(self.recordings).split(",") if part.strip()):
            split, equals, name = word.partition("=")
            place = Path(name if equals else word)
            path = place / TRAJECTORIES if place.is_dir() else place
            if not path.is_file():
                raise UsageError(
                    f"recordings {word}: {path} does not exist (prill convert mind2web "
                    "writes such a file)"
                )
            if path in found:
                raise UsageError(
                    f"recordings {word}: {path} is listed twice; list each file for one split only"
                )
            found[path] = split if equals else place.stem
        if not found:
            raise UsageError(
                "recordings is missing; give files of recorded turns, which prill convert "
                "mind2web writes",
                parameters=("recordings",),
            )
        return found

    def setting(self, run: Playing) -> Setting[Any]:
        """Opens the recordings."""
        usual = run.marking if isinstance(run.marking, Marking) else Marking()
        spec = Mind2WebSpec(
            within=usual.top if self.within is None else self.within,
            lost=self.lost,
            scheme=self.scheme or usual.scheme,
            step_match=self.step_match or usual.step_match,
        )
        recordings = Recordings(list(self.files()))
        names = task_names(self.tasks or "all", recordings.names)
        environments = [Mind2Web(spec=spec, opened=recordings) for _ in range(run.copies)]
        return Setting(
            environments,
            names,
            Mind2Web.task,
            Mind2Web.grade,
            asdict(spec),
            contents=recordings.digests,
            templates=recordings.conversations,
            sites=recordings.sites,
        )
