"""The OpenAPI description of the admin API, made from its routes and schemas."""

from __future__ import annotations

from typing import Any

from rspdns.admin.access import Right
from rspdns.admin.routes import JSON, ROUTES, Route
from rspdns.admin.schemas import SCHEMAS

_ABOUT = """Reading is open on loopback unless read_tokens are set; writing needs a token of write_tokens.
Fields are only ever added within /v1/."""


def description() -> dict[str, Any]:
    """The document (OpenAPI 3.1)."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "rspdns admin API", "version": "1", "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler,
        "summary": route.summary,
        "responses": {
            "200": {"description": "As asked.", "content": _content(route.content, route.answer)},
            "default": {"description": "What was wrong.", "content": _content(JSON, "Error")},
        },
    }
    if route.parameters:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in route.parameters
        ]
    if route.body:
        operation["requestBody"] = {"required": True, "content": _content(JSON, route.body)}
    if route.right is not Right.NOTHING:
        # An empty requirement: on loopback, reading may be open.
        operation["security"] = [{"token": []}] if route.right is Right.WRITE else [{}, {"token": []}]
    return operation


def _content(kind: str, schema: str) -> dict[str, Any]:
    return {kind: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
