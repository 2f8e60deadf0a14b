"""POST /v1/feedback: a reply that must not be given again, or what should have been said instead."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field, StringConstraints

from ranker.errors import FullError, InputError
from ranker.feedback import FeedbackStore
from ranker.server.errors import DOCUMENTED, ApiError, from_ranker
from ranker.server.schemas import Request

logger = logging.getLogger("ranker.server")

_MAX_TURNS = 100
_FULL_SECONDS = 3600
"""When to try again where the store is full: a person has to look at it first."""

Turn = Annotated[str, StringConstraints(max_length=10_000)]
Reply = Annotated[str, StringConstraints(min_length=1, max_length=4_000)]


class _Feedback(Request):
    context: list[Turn] = Field(
        min_length=1, max_length=_MAX_TURNS, description="The turns before the reply, oldest first."
    )
    text: Reply = Field(description="The reply that was given.")
    candidate_id: str | None = Field(
        None, max_length=300, description="The reply's id; null where it was generated."
    )
    pool: str | None = Field(None, max_length=100, description="The reply's pool.")
    reason: str = Field("", max_length=1_000, description="Why, in the user's own words.")


class ReportRequest(_Feedback):
    """Marks a reply as one that must not be given again."""

    kind: Literal["report"]


class EditRequest(_Feedback):
    """Says what should have been said instead."""

    kind: Literal["edit"]
    edited_text: Reply


class FeedbackAnswer(BaseModel):
    id: int


def router(store: Callable[[], FeedbackStore]) -> APIRouter:
    """The feedback route. `store` is asked at each request: it is opened when the server starts, after the
    routes are made."""
    routes = APIRouter()

    @routes.post("/v1/feedback", status_code=201, responses=DOCUMENTED, tags=["feedback"])
    def give_feedback(
        feedback: Annotated[ReportRequest | EditRequest, Field(discriminator="kind")],
    ) -> FeedbackAnswer:
        """Report a reply, or edit it. It is on disk once this answers."""
        kept = store()
        about = (feedback.context, feedback.text)
        try:
            if isinstance(feedback, EditRequest):
                entry = kept.edit(
                    *about,
                    feedback.edited_text,
                    candidate_id=feedback.candidate_id,
                    pool=feedback.pool or "",
                    reason=feedback.reason,
                ).id
            else:
                entry = kept.report(
                    *about,
                    candidate_id=feedback.candidate_id,
                    pool=feedback.pool or "",
                    reason=feedback.reason,
                ).id
        except InputError as error:
            raise from_ranker(error) from error
        except FullError as error:
            logger.warning("feedback is refused: %s", error)
            raise ApiError(
                429,
                "no more feedback is taken until the operator has looked at what there is",
                code="feedback_full",
                headers={"Retry-After": str(_FULL_SECONDS)},
            ) from error
        return FeedbackAnswer(id=entry)

    return routes
