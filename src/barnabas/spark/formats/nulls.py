"""NOT NULL in a schema, which Spark's own parsers read and then ignore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 (so it is called everywhere)
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column


def missing_field(value: Column, struct: StructType) -> Column:
    """Says which field of a struct must be there and is not; null where all are."""
    return F.coalesce(*_gaps(value, struct, ""), F.lit(None).cast("string"))


def _gaps(column: Column, data_type: DataType, path: str) -> list[Column]:
    """For each thing that must not be null: what to say if it is."""
    match data_type:
        case StructType():
            gaps = []
            for field in data_type:
                inner = f"{path}.{field.name}" if path else field.name
                if not field.nullable:
                    gaps.append(_say(column.isNotNull() & column[field.name].isNull(), inner))
                gaps.extend(_gaps(column[field.name], field.dataType, inner))
            return gaps
        case ArrayType():
            return _element_gaps(column, data_type.elementType, f"{path}[]", nullable=data_type.containsNull)
        case MapType():
            values = F.map_values(column)
            return _element_gaps(values, data_type.valueType, f"{path}{{}}", nullable=data_type.valueContainsNull)
    return []


def _element_gaps(elements: Column, data_type: DataType, path: str, *, nullable: bool) -> list[Column]:
    gaps = [] if nullable else [_say(F.exists(elements, lambda element: element.isNull()), path)]
    if _gaps(F.lit(None), data_type, path):
        found = F.transform(elements, lambda element: F.coalesce(*_gaps(element, data_type, path)))
        gaps.append(F.get(F.filter(found, lambda gap: gap.isNotNull()), F.lit(0)))
    return gaps


def _say(is_gap: Column, path: str) -> Column:
    return F.when(is_gap, f"field {path} is missing or null")
