"""Configurations of `prill train ranker` and `prill train planner`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from prill.errors import UsageError
from prill.policies.registry import Fingerprinted
from prill.refine.demonstration import Teacher
from prill.refine.training.spec import DEFAULT_PRESETS, Trained
from prill.runs.filter import PLAIN, TeacherConfig, TeacherLike, described, make_teacher
from prill.runs.train import PresetConfig, PresetLike, TrainConfig

_RANKER, _PLANNER = (
    PresetConfig(DEFAULT_PRESETS["ranker"]),
    PresetConfig(DEFAULT_PRESETS["planner"]),
)


@dataclass(frozen=True, kw_only=True)
class TrainRankerConfig(TrainConfig):
    """Configuration of `prill train ranker`: train a candidate ranker on gold trajectories of
    recorded pages.
    """

    trains: ClassVar[Trained] = "ranker"
    preset: Annotated[
        PresetLike,
        Meta(description="Settings to start from: the name of a preset, or a .toml file."),
    ] = _RANKER


@dataclass(frozen=True, kw_only=True)
class TrainPlannerConfig(TrainConfig):
    """Configuration of `prill train planner`: train a planner that answers a policy's prompts, on
    gold trajectories of recorded pages.
    """

    trains: ClassVar[Trained] = "planner"
    policy: Annotated[
        TeacherLike,
        Meta(
            description="Policy that will call the planner, which sets its questions and "
            "answers: mindact, self-map, or module:Object."
        ),
    ]
    preset: Annotated[
        PresetLike,
        Meta(description="Settings to start from: the name of a preset, or a .toml file."),
    ] = _PLANNER

    def check(self) -> None:
        """Checks that a policy is named.

        Raises:
            UsageError: The policy is the plain prompt, which no policy uses.
        """
        if isinstance(self.policy, TeacherConfig) and self.policy.name == PLAIN:
            raise UsageError(
                "policy is missing; name the policy that the planner answers",
                parameters=("policy",),
            )

    def teacher(self) -> tuple[Teacher | None, dict[str, Any] | None]:
        """Returns the policy whose prompts the planner answers.

        Returns:
            The policy, and its name, options and prompts for the record.
        """
        teacher = make_teacher(self.policy)
        prompts = teacher.fingerprint("web") if isinstance(teacher, Fingerprinted) else None
        return teacher, {**described(self.policy), "prompts": prompts}
