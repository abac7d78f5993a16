"""What all parts of a configuration have in common."""

from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A part of a configuration: unknown keys are errors, and nothing changes after it was checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_truth_values(cls, values: Any) -> Any:
        """Pydantic would read `k: yes` as 1."""
        for name, field in cls.model_fields.items():
            wanted = isinstance(values, dict) and isinstance(values.get(name), bool)
            if wanted and bool not in (field.annotation, *get_args(field.annotation)):
                raise ValueError(f"{name} is {values[name]}: true, false, yes, no, on and off are not a value of it")
        return values
