"""Limits on what a run may cost, which are checked by its estimate before anything is started."""

from collections.abc import Mapping
from typing import NamedTuple

from beamrank.errors import BeamrankError, ConfigError
from pipelines.plan.estimate import Estimate


class Limits(NamedTuple):
    """The most inferences that a run may make, and hours that it may take on one worker; None: any number."""

    max_inferences: int | None = None
    max_hours: float | None = None

    @classmethod
    def of(cls, values: Mapping[str, float]) -> "Limits":
        """Limits by their names.

        Raises:
            ConfigError: a name is unknown.
        """
        unknown = sorted(values.keys() - set(cls._fields))
        if unknown:
            raise ConfigError(f"limits has no {unknown[0]}: give {' or '.join(cls._fields)}")
        inferences = values.get("max_inferences")
        return cls(None if inferences is None else int(inferences), values.get("max_hours"))

    def check(self, found: Estimate, stage: str | None) -> None:
        """Refuses a run, or one stage of it, that would exceed a limit.

        Raises:
            BeamrankError: with what is predicted and what is allowed.
        """
        stages = [each for each in found.stages if stage in (None, each.stage)]
        inferences = sum(each.remaining_inferences for each in stages)
        hours = sum(each.remaining_seconds for each in stages) / 3600
        over = []
        if self.max_inferences is not None and inferences > self.max_inferences:
            over.append(
                f"up to {inferences:,} inferences are predicted, and --max-inferences allows {self.max_inferences:,}"
            )
        if self.max_hours is not None and hours > self.max_hours:
            over.append(
                f"{hours:,.3g} hours of a worker like this machine are predicted, and --max-hours allows "
                f"{self.max_hours:,g}"
            )
        if over:
            raise BeamrankError(
                f"nothing was started: {'; '.join(over)}. Raise the limit, or lower k; `beamrank plan` shows each stage"
            )


NO_LIMITS = Limits()
