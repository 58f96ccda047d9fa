"""Enough of JSON Schema to compare answers with their OpenAPI description; unknown words are errors."""

import re
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = {"type", "description", "properties", "required", "additionalProperties", "items", "enum", "pattern"}
_KNOWN |= {"minimum", "minItems", "maxItems", "$ref", "anyOf"}


def differences(value: Any, schema: dict[str, Any], document: dict[str, Any], at: str = "$") -> list[str]:
    """The parts of `value` that are against `schema` of the OpenAPI `document`."""
    if unknown := schema.keys() - _KNOWN:
        return [f"{at}: this checker does not know {unknown}"]
    if reference := schema.get("$ref"):
        name = reference.removeprefix("#/components/schemas/")
        return differences(value, document["components"]["schemas"][name], document, at)
    if choices := schema.get("anyOf"):
        by_choice = [differences(value, choice, document, at) for choice in choices]
        return [] if [] in by_choice else by_choice[0]
    wanted = schema.get("type")
    kinds = [wanted] if isinstance(wanted, str) else wanted or list(_TYPES)
    if not any(_is(value, kind) for kind in kinds):
        return [f"{at}: {value!r} is not {wanted}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is none of {schema['enum']}")
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append(f"{at}: {value!r} does not match {schema['pattern']}")
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and value < schema.get("minimum", value)
    ):
        found.append(f"{at}: {value} is too small")
    if isinstance(value, list):
        for index, element in enumerate(value):
            found += differences(element, schema.get("items", {}), document, f"{at}[{index}]")
    if isinstance(value, dict):
        found += _object(value, schema, document, at)
    return found


def _object(value: dict[str, Any], schema: dict[str, Any], document: dict[str, Any], at: str) -> list[str]:
    found = [f"{at}: {key} is missing" for key in schema.get("required", ()) if key not in value]
    properties = schema.get("properties", {})
    more = schema.get("additionalProperties", {})
    for key, inner in value.items():
        if key in properties:
            found += differences(inner, properties[key], document, f"{at}.{key}")
        elif more is False:
            found.append(f"{at}: {key} is not described")
        else:
            found += differences(inner, more, document, f"{at}.{key}")
    return found


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
