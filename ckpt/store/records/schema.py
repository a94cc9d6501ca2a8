"""The records as pydantic models, made from their one definition (`formats.py`); `verify` reads records with them.

So the records that a rank accepts are checked a second time by a widely used library; a test compares the decisions of both.
A rank never imports this module: the import of pydantic takes longer than the commit of a small image.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, InstanceOf, ValidationError, create_model

from ckpt.store.errors import RecordDamaged
from ckpt.store.records.formats import CONTROL, MANIFEST
from ckpt.store.records.shapes import (
    DoesNotFit,
    Either,
    Free,
    Hex,
    Integer,
    Nullable,
    OneOf,
    Record,
    Row,
    Rows,
    Shape,
    Table,
    Text,
)
from ckpt.transport import jsontext

__all__ = ["check", "check_control", "check_manifest", "model_of"]


@cache
def model_of(record: Record) -> type[BaseModel]:
    """The model with the fields of a record, without its rule."""
    fields: dict[str, Any] = {
        name: (_annotation(shape), None if name in record.optional else ...)
        for name, shape in record.fields.items()
    }
    config = ConfigDict(extra="allow" if record.open else "forbid")
    return create_model(record.title, __config__=config, **fields)


def _annotation(shape: Shape) -> Any:
    """Return the type annotation that pydantic validates like `shape`."""
    match shape:
        case Integer():
            return Annotated[int, Field(strict=True, ge=shape.least, le=shape.most)]
        case Text(pattern=None):
            return InstanceOf[str]  # names of files need not be UTF-8
        case Text(pattern=pattern) | Hex(pattern=pattern):
            return Annotated[str, Field(strict=True, pattern=f"^(?:{pattern})$")]
        case OneOf(python_type=python_type, values=values):
            if python_type is str:
                return Literal[*values]
            return Annotated[int, Field(strict=True), AfterValidator(_among(values))]
        case Free():
            return InstanceOf[dict[str, Any]]
        case Nullable():
            return _annotation(shape.shape) | None
        case Rows():
            return Annotated[list[_annotation(shape.shape)], Field(strict=True, min_length=shape.least)]  # type: ignore[misc]
        case Row():
            places = tuple(_annotation(place) for place in shape.places.values())
            either: Any = tuple[places]  # type: ignore[valid-type]
            for length in range(shape.least, len(places)):
                either |= tuple[places[:length]]  # type: ignore[misc]
            return either
        case Either():
            return _annotation(shape.one) | _annotation(shape.other)
        case Table():
            return dict[_annotation(shape.key), _annotation(shape.shape)]  # type: ignore[misc]
        case Record():
            return model_of(shape)
    raise TypeError(f"no annotation for {type(shape).__name__}")


def _among(values: tuple[Any, ...]) -> Callable[[int], int]:
    def check(value: int) -> int:
        if value not in values:
            raise ValueError(f"none of {', '.join(map(str, values))}")
        return value

    return check


def check(record: Record, data: bytes, path: str) -> Any:
    """Parse the verified bytes of a record. Raises RecordDamaged, which names the first wrong field."""
    try:
        content = jsontext.parse(data.decode("utf-8", "surrogateescape"))
        model = model_of(record).model_validate(content)
        if record.rule is not None:
            record.rule(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordDamaged(f"{record.title}: field {where}: {first['msg']}", path=path) from error
    except DoesNotFit as error:
        raise RecordDamaged(f"{record.title}: {error}", path=path) from error
    except ValueError as error:
        raise RecordDamaged(f"{record.title} is no JSON ({error})", path=path) from error
    return model


def check_manifest(data: bytes, path: str) -> Any:
    return check(MANIFEST, data, path)


def check_control(data: bytes, path: str) -> Any:
    return check(CONTROL, data, path)
