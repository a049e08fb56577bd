"""The reference of the HTTP API, from its OpenAPI description."""

from collections.abc import Iterable, Mapping
from typing import Any

from celeriac.app import Celeriac
from celeriac.core.redaction import Redactor
from celeriac.node.watcher import Watcher
from celeriac.transport.memory import MemoryBroker
from celeriac.web.access import Access
from celeriac.web.board import Board
from celeriac.web.server import make_app
from scripts.docs.markdown import cell, code, table

__all__ = ["description", "http_page"]

_HEAD = """# Every address of the HTTP API

The content of `/api/v1/openapi.json`, read from the program when this page was built.

"""
#: Keywords of a schema on the values that are allowed, and their words.
_BOUNDS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
}
_KINDS = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "object": "object",
}
#: FastAPI's words for the responses of every API.
_STATUS = {
    "Successful Response": "response",
    "Validation Error": "invalid parameter",
    "Bad Request": "invalid request",
    "Not Found": "not found",
    "Service Unavailable": "a required service is not available",
}


def description() -> dict[str, Any]:
    """Return the API as OpenAPI describes it. The cluster in it is in memory, and nothing is started."""
    app = Celeriac(MemoryBroker(), environ={})
    watcher = Watcher(app.events, hostname=app.hostname, redactor=Redactor())
    return make_app(Board(watcher), Access()).openapi()


def http_page() -> str:
    """Return the page."""
    api = description()
    routes = [
        _route(f"{method.upper()} {path}", route)
        for path, methods in api["paths"].items()
        for method, route in methods.items()
    ]
    schemas = [_schema(name, schema) for name, schema in api["components"]["schemas"].items()]
    return _HEAD + "\n".join([*routes, "## Schemas\n", *schemas])


def _route(name: str, route: Mapping[str, Any]) -> str:
    parts = [f"## `{name}`", cell(route.get("description", ""))]
    parts.append(
        table(
            ("Parameter", "Where", "Kind", "Default", "Means"),
            (_parameter(each) for each in route.get("parameters", ())),
        )
    )
    if "requestBody" in route:
        parts.append(f"Takes {_content(route['requestBody'])}.")
    parts.append(
        table(
            ("Status", "Means", "Holds"),
            (
                (status, _STATUS.get(each["description"], cell(each["description"])), _content(each))
                for status, each in sorted(route["responses"].items())
            ),
        )
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _parameter(each: Mapping[str, Any]) -> tuple[str, ...]:
    schema = each["schema"]
    # An address has no null: a parameter that is left out stands for it.
    kinds = [_kind(kind) for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    default = "required" if each["required"] else _default(schema)
    place = "in the path" if each["in"] == "path" else ""
    return code(each["name"]), place, " or ".join(kinds), default, cell(each.get("description", ""))


def _default(schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    return "" if value in (None, []) else code(str(value).lower() if isinstance(value, bool) else str(value))


def _content(holder: Mapping[str, Any]) -> str:
    return ", ".join(
        _kind(each.get("schema", {})) or code(kind) for kind, each in holder.get("content", {}).items()
    )


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the allowed values in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return _any_of(schema["enum"])
    if "const" in schema:
        return _any_of([schema["const"]])
    kind = schema.get("type", "")
    if kind == "array":
        words = f"list of: {_kind(schema.get('items', {})) or 'anything'}"
    elif kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        words = f"object with values: {_kind(schema['additionalProperties']) or 'anything'}"
    else:
        words = _KINDS.get(kind, kind)
    bounds = [
        text.format(_number(schema[key])) for key, text in _BOUNDS.items() if _is_telling(schema.get(key))
    ]
    return ", ".join([words, *bounds])


def _any_of(values: Iterable[object]) -> str:
    return " or ".join(code(str(value)) for value in values)


def _is_telling(bound: float | None) -> bool:
    """Return whether a bound is one that users may meet, not the largest number of the machine."""
    return bound is not None and bound < 1e9


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else str(value)


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    fields = table(
        ("Field", "Kind", "Default", "Means"),
        (
            (
                code(field),
                _kind(each),
                "required" if field in required else _default(each),
                cell(each.get("description", "")),
            )
            for field, each in schema.get("properties", {}).items()
        ),
    )
    return "\n\n".join(part for part in (f"### {name}", schema.get("description", ""), fields) if part) + "\n"
