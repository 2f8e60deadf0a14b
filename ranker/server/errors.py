"""Every error leaves the server as {"error": {"code", "message"}}, and none tells about the inside."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ranker.errors import RankerError
from ranker.server.schemas import ErrorAnswer

logger = logging.getLogger("ranker.server")

_SHOWN_PROBLEMS = 5
_CODES = {
    400: "bad_request",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    429: "overloaded",
    500: "internal_error",
    503: "unavailable",
    504: "deadline_exceeded",
}
REJECTED = {status: _CODES[status] for status in (401, 413, 429, 503, 504)}
"""Answers that refuse a request that may well have been fine."""

DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": HTTPStatus(status).phrase}
    for status in (401, 413, 422, 429, 500, 503, 504)
}
"""For the OpenAPI document: the errors that any route of the API may answer with."""


class ApiError(HTTPException):
    """An answer other than success. The message is for the caller.

    An HTTPException, because FastAPI takes any other error while it reads a body for a malformed one.
    """

    def __init__(
        self, status: int, message: str, *, code: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, message, headers)
        self.code = code or _CODES.get(status, "error")

    @classmethod
    def invalid(cls, message: str) -> ApiError:
        return cls(422, message)

    @classmethod
    def overloaded(cls) -> ApiError:
        return cls(429, "the server is busy: try again in a second", headers={"Retry-After": "1"})

    @classmethod
    def too_large(cls, limit: int) -> ApiError:
        return cls(413, f"the body is larger than {limit:,} bytes")

    @classmethod
    def unauthorized(cls) -> ApiError:
        headers = {"WWW-Authenticate": "Bearer"}
        return cls(401, "give a valid API key: Authorization: Bearer KEY", headers=headers)

    @classmethod
    def late(cls, seconds: float) -> ApiError:
        return cls(504, f"no answer within {seconds:g} seconds", headers={"Retry-After": "1"})

    @classmethod
    def internal(cls) -> ApiError:
        return cls(500, "something went wrong inside the server; its log says what")

    def response(self) -> Response:
        body = {"error": {"code": self.code, "message": self.detail}}
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        return Response(content, self.status_code, self.headers, "application/json")


def from_ranker(error: RankerError) -> ApiError:
    """What the caller gave cannot be used. Only for errors that are about the request: messages of others may
    name files."""
    return ApiError.invalid(str(error))


def install_error_handlers(app: FastAPI) -> None:
    """Answer in the one shape whatever a route, the router or the validation of a request raises."""

    @app.exception_handler(ApiError)
    async def _api_error(_: Request, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(RankerError)
    async def _ranker_error(_: Request, error: RankerError) -> Response:
        # Not about the request, else the route had said so: it may name files, so it goes to the log only.
        logger.error("a request failed: %s", error, exc_info=error)
        return ApiError.internal().response()

    @app.exception_handler(HTTPException)
    async def _http_error(_: Request, error: HTTPException) -> Response:
        phrase = HTTPStatus(error.status_code).phrase.lower()
        return ApiError(error.status_code, phrase, headers=error.headers).response()

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, error: RequestValidationError) -> Response:
        return ApiError.invalid(_problems(error)).response()


def _problems(error: RequestValidationError) -> str:
    """The first problems, each with the place in the body; never the value, which may be private."""
    found = list(dict.fromkeys(f"{_place(one['loc'])}: {one['msg']}" for one in error.errors()))
    more = len(found) - _SHOWN_PROBLEMS
    return "; ".join(found[:_SHOWN_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")


def _place(location: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in location[1:]) or "body"
