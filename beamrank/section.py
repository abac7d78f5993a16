"""The base of all sections of a configuration, types of their keys, and lists of texts."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Annotated, Any, ClassVar, TypeAlias, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from beamrank.errors import ConfigError
from beamrank.machine import DEVICE_PATTERN


class Relative(Enum):
    """Marks a key whose value, if it is a relative path, is relative to the configuration file."""

    PATH = auto()
    GLOB = auto()
    PATH_OR_SELF = auto()
    CHECKPOINT = auto()


# In place of the file of the docs to exclude: the doc that is the query itself.
SELF = "self"
# An empty one would be the configuration's own folder.
Path = Annotated[str, Field(min_length=1), Relative.PATH]
Glob = Annotated[str, Field(min_length=1), Relative.GLOB]
# A path, or `self`.
PathOrSelf = Annotated[str, Field(min_length=1), Relative.PATH_OR_SELF]


def _check_paths(paths: Any, check: Callable[[Any], Any]) -> Any:
    with suppress(ValidationError):
        checked = check(paths)
        if checked and all(checked):
            return checked
    raise ValueError("a path is missing: give a path, a glob, or a list of them, in UTF-8")


# One file or several.
Paths = Annotated[str | tuple[str, ...], WrapValidator(_check_paths), Relative.GLOB]
# A path, a Hugging Face id or embedded:NAME.
CheckpointName = Annotated[str, Relative.CHECKPOINT]
DeviceName = Annotated[str, StringConstraints(pattern=f"^({DEVICE_PATTERN})$")]
NotNegative = Annotated[int, Field(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Section(BaseModel):
    """A part of a configuration: unknown keys are errors, and nothing changes after the check.

    The docstring of a key is its description in the documentation.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
    short: ClassVar[str] = ""
    """The key that a value in place of the section stands for."""

    @classmethod
    def fields_of(cls, document: Mapping[str, Any]) -> Mapping[str, FieldInfo]:  # noqa: ARG003
        """The fields of the keys that a document can have; some sections take keys of packages."""
        return cls.model_fields

    @model_validator(mode="before")
    @classmethod
    def _check_values(cls, values: Any) -> Any:
        """Pydantic would read `k: "1_0"` as 10, and `k: yes` as 1."""
        values = cls.written_out(values)
        for name, field in cls.model_fields.items() if isinstance(values, dict) else ():
            value, kinds = values.get(name), _kinds(field.annotation)
            is_number = str not in kinds and (int in kinds or float in kinds)
            if is_number and isinstance(value, str) and "_" in value:
                raise ValueError(f"{name} is {value!r}: a number has no underscore")
            if isinstance(value, bool) and bool not in kinds:
                raise ValueError(
                    f"{name} is {value}: true, false, yes, no, on and off are not values of it "
                    "unless quoted"
                )
        return values

    @classmethod
    def written_out(cls, values: Any) -> Any:
        """A document's value with each short form in it as a section: `x` as `{path: x}`."""
        if cls.short and not isinstance(values, Mapping | Section | None):
            values = {cls.short: values}
        if not isinstance(values, dict):
            return values
        sections = {name: section_of(field) for name, field in cls.fields_of(values).items()}
        return {
            name: value if (section := sections.get(name)) is None else section.written_out(value)
            for name, value in values.items()
        }


def section_of(field: FieldInfo | None) -> type[Section] | None:
    """The section that a key holds; None if it holds a value."""
    kinds = _kinds(field.annotation) if field else ()
    return next(
        (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)), None
    )


def relative(field: FieldInfo) -> Relative | None:
    """How a key's value is relative to the configuration file; None if it is not a path."""
    marks = [
        *field.metadata,
        *(
            mark
            for argument in get_args(field.annotation)
            for mark in getattr(argument, "__metadata__", ())
        ),
    ]
    return next((mark for mark in marks if isinstance(mark, Relative)), None)


def keys(model: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key that can hold a value, in order, with its dotted name; none that has no `repr`."""
    for name, field in model.fields_of({}).items():
        section = section_of(field)
        if field.repr and section is None:
            yield prefix + name, field
        if section is not None:
            yield from keys(section, f"{prefix}{name}.")


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """A type, and the types that make it up."""
    return annotation, *(kind for argument in get_args(annotation) for kind in _kinds(argument))


@dataclass(frozen=True, eq=False)
class OneOf:
    """A text that must be a name in a registry, by `Annotated[str, OneOf(REGISTRY)]`; `also` are
    others.

    The registry is read when a value is checked, so names that are added later are accepted.
    """

    names: Collection[str]
    also: tuple[str, ...] = ()

    @property
    def accepted(self) -> tuple[str, ...]:
        """All that are accepted."""
        return *self.also, *self.names

    def _check(self, name: str) -> str:
        if name not in self.accepted:
            raise ValueError(f"{name!r} is unknown; accepted: {', '.join(self.accepted)}")
        return name

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: Any) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.accepted)}


Texts: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"


def texts_of(name: str, value: Any) -> list[str]:
    """The texts of an argument, read once; a single text or path is a list of one."""
    if isinstance(value, str | os.PathLike):
        return [os.fspath(value)]
    check_ordered(name, value)
    texts: list[Any] = (
        [value] if isinstance(value, bytes) or not isinstance(value, Iterable) else list(value)
    )
    for text in texts:
        if not isinstance(text, str | os.PathLike):
            raise ConfigError(
                f"{name} holds {text!r:.60} ({type(text).__name__}): give a list of texts"
            )
    return [os.fspath(text) for text in texts]


def check_ordered(name: str, value: object) -> None:
    """Refuses a set where the order matters."""
    if isinstance(value, Set):
        raise ConfigError(f"{name} is a {type(value).__name__}, which has no order: give a list")
