"""The chat page at `/`: three files of the package, no build step, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse

_STATIC = Path(__file__).parent / "static"
_FILES = {
    "/": ("index.html", "text/html"),
    "/static/chat.css": ("chat.css", "text/css"),
    "/static/chat.js": ("chat.js", "text/javascript"),
}
PAGE_PATHS = frozenset(_FILES)
"""Open to everybody: the page asks for an API key itself where the API wants one."""

_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def router() -> APIRouter:
    """GET routes of the page and its two files."""
    routes = APIRouter()
    for path, (name, media_type) in _FILES.items():
        routes.add_api_route(path, _sender(_STATIC / name, media_type), include_in_schema=False)
    return routes


def _sender(file: Path, media_type: str) -> Callable[[], Awaitable[FileResponse]]:
    async def send() -> FileResponse:
        return FileResponse(file, headers=_HEADERS, media_type=media_type)

    return send
