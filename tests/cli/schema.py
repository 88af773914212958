"""Checks a report against its schema in ``docs``: the few keywords of JSON Schema that they use, and no others."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_schema(name: str) -> dict[str, Any]:
    """The schema in the file ``docs/`` *name*."""
    return json.loads((Path(__file__).parents[2] / "docs" / name).read_text())


SCHEMA = read_schema("report.schema.json")

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
_NOTES = {"$schema", "$id", "$defs", "title", "description"}


def complaints(document: Any, schema: dict[str, Any] = SCHEMA) -> list[str]:
    """What is wrong with *document*; empty when nothing is."""
    return list(_complaints(document, schema, "$", schema["$defs"]))


def _complaints(value: Any, schema: dict[str, Any], path: str, known: dict[str, Any]) -> Iterator[str]:
    for keyword, rule in schema.items():
        match keyword:
            case "$ref":
                yield from _complaints(value, known[rule.removeprefix("#/$defs/")], path, known)
            case "type":
                names = [rule] if isinstance(rule, str) else rule
                if not any(_is_of(value, name) for name in names):
                    yield f"{path} is {value!r}, not {rule}"
            case "const":
                if value != rule:
                    yield f"{path} is {value!r}, not {rule!r}"
            case "enum":
                if value not in rule:
                    yield f"{path} is {value!r}, none of {rule}"
            case "minimum":
                if _is_of(value, "number") and value < rule:
                    yield f"{path} is {value!r}, below {rule}"
            case "anyOf":
                if all(list(_complaints(value, choice, path, known)) for choice in rule):
                    yield f"{path} is {value!r}, which no choice admits"
            case "required" | "properties" | "additionalProperties" if not _is_of(value, "object"):
                pass  # These say something of objects only.
            case "required":
                yield from (f"{path} has no {name}" for name in rule if name not in value)
            case "properties":
                for name, member in rule.items():
                    if name in value:
                        yield from _complaints(value[name], member, f"{path}.{name}", known)
            case "additionalProperties":
                assert rule is False
                yield from (f"{path} has a {name} too many" for name in value if name not in schema["properties"])
            case "items":
                for position, item in enumerate(value):
                    yield from _complaints(item, rule, f"{path}[{position}]", known)
            case _:
                assert keyword in _NOTES, f"the checker does not know {keyword}"


def _is_of(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
