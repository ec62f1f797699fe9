"""The base of phone configurations: a device for each worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from prill.config.registry import list_options
from prill.emulators.registry import make_environment
from prill.emulators.settings import Playing, Setting
from prill.emulators.task_source import GoalsConfig, join_names
from prill.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class PhoneConfig(GoalsConfig):
    """Tasks on phones. `_device` is the option that names devices, one a worker."""

    _device: ClassVar[str] = "device"

    def check(self) -> None:
        """Converts the device names to one text."""
        object.__setattr__(self, self._device, join_names(getattr(self, self._device)))

    def phones(
        self,
        run: Playing,
        spec: type[Any],
        devices: Sequence[str | None],
        fingerprint: Mapping[str, Any],
        leftovers: str | None,
    ) -> Setting[Any]:
        """Makes a phone with the options of `spec` for each device."""
        options = {name: getattr(self, name) for name in list_options(spec) if name != self._device}
        environments = [
            make_environment(self.name, images=run.images, **{**options, self._device: device})
            for device in devices
        ]
        fingerprint = {**fingerprint, **self.more()}
        return self.goal_setting(
            environments, self.platform, fingerprint, patience=3, leftovers=leftovers
        )

    def one_a_worker(self, workers: int | None) -> list[str | None]:
        """Returns one named device per worker; None stands for the only device. Raises UsageError
        if there are too few.
        """
        option, named = self._device, getattr(self, self._device)
        names: list[str | None] = [name.strip() for name in named.split(",")] if named else [None]
        if workers and workers > len(names):
            raise UsageError(
                f"workers {workers}: every worker needs a device of its own; give as many devices",
                parameters=(option, "workers"),
            )
        if len(set(names)) < len(names):
            raise UsageError(
                f"{option} {named}: the same device is listed twice", parameters=(option,)
            )
        return names[:workers]
