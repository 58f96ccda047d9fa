"""Compares answers with their OpenAPI 3.1 description, whose schemas are JSON Schema 2020-12."""

from typing import Any

from jsonschema import Draft202012Validator


def differences(value: Any, schema: dict[str, Any], document: dict[str, Any]) -> list[str]:
    """Return each difference between `value` and `schema` of the OpenAPI `document`, with its place."""
    whole = {**schema, "components": document["components"]}
    Draft202012Validator.check_schema(whole)
    errors = Draft202012Validator(whole).iter_errors(value)
    return [f"{error.json_path}: {error.message}" for error in errors]
