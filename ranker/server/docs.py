"""The page at /docs: the OpenAPI document for people, with nothing loaded from elsewhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any

PATH = "/docs"
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
summary { cursor: pointer; padding: .4rem 0 }
code, pre { font: .85rem/1.45 ui-monospace, monospace }
pre { overflow-x: auto; padding: .75rem; border: 1px solid color-mix(in srgb, currentColor 25%, transparent) }
"""


def docs_page(document: dict[str, Any]) -> str:
    """HTML of an OpenAPI document: every route with its text and the schemas of its body and answer."""
    info = document["info"]
    routes = [
        _route(method, path, operation, document)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    title = escape(f"{info['title']} {info['version']}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{title}</h1><p>{escape(info.get('description', ''))}</p>"
        '<p>The same for programs: <a href="openapi.json">openapi.json</a></p>'
        f"{''.join(routes)}</body></html>"
    )


def _route(method: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> str:
    parts = [f"<p>{escape(operation.get('description', ''))}</p>"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        parts.append(f"<h4>Body</h4>{_schema(body, document)}")
    for status, response in operation.get("responses", {}).items():
        schema = response.get("content", {}).get("application/json", {}).get("schema")
        if status.startswith("2") and schema:
            parts.append(f"<h4>Answer</h4>{_schema(schema, document)}")
    return (
        f"<details><summary><code><b>{method.upper()}</b> {escape(path)}</code></summary>"
        f"{''.join(parts)}</details>"
    )


def _schema(schema: dict[str, Any], document: dict[str, Any]) -> str:
    """The schema itself, names of others followed one step."""
    reference = schema.get("$ref")
    if reference is not None:
        schema = document["components"]["schemas"][reference.rsplit("/", 1)[1]]
    return f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"
