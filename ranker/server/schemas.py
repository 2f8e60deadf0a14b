"""What the native routes take and give. Answers are sent as made (see ranker.engine.shapes): their models
here are for the OpenAPI document, and tests hold the two together."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Text = Annotated[str, StringConstraints(min_length=1)]
ContextField = Annotated[
    Text | Annotated[list[str], Field(min_length=1)],
    Field(description="The turns so far, oldest first; a text counts as one turn.", examples=[["Hello!"]]),
]


class Request(BaseModel):
    """An unknown key is an error: it is most often a misspelt one."""

    model_config = ConfigDict(extra="forbid")


class FiltersField(Request):
    """Which candidates may be ranked; an empty list allows everything."""

    emotions: list[str] = []
    intents: list[str] = []
    licences: list[str] = []
    commercial_only: bool = False


Weight = Annotated[float, Field(ge=0.0, le=10.0)]


class BoostsField(Request):
    """Moves candidates up, rather than leaving others out. Scores are cosines: a weight of 0.1 is strong."""

    emotions: Annotated[list[str], Field(description="Candidates with one of them get the weight.")] = []
    intents: Annotated[list[str], Field(description="Candidates with one of them get the weight.")] = []
    weight: Weight = 0.1
    response_intent: Annotated[
        Weight, Field(description="How much it counts that a candidate's intent is the likely one.")
    ] = 0.0


FallbackField = Annotated[
    Literal["never", "auto", "always"] | Annotated[float, Field(ge=0.0, le=1.0, strict=True)] | None,
    Field(
        description="When a generator answers: a number where the confidence is below it, auto below what "
        "was measured to be best; null as the server is set. Where it cannot, the best candidate is given.",
    ),
]


class RankRequest(Request):
    context: ContextField
    k: int = Field(10, ge=1, description="How many candidates to rank.")
    pools: list[str] = Field([], description="Only candidates of these pools; none named: of all.")
    filters: FiltersField = FiltersField()
    boosts: BoostsField = BoostsField()
    diversity: float = Field(0.0, ge=0.0, le=1.0, description="Trades score for variety.")
    keep_echoes: bool = Field(False, description="Keep replies that repeat a turn of the context.")


class RespondRequest(Request):
    context: ContextField
    k: int = Field(5, ge=1, description="How many places of the ranking to give with the reply.")
    pools: list[str] = Field([], description="Only candidates of these pools; none named: of all.")
    filters: FiltersField = FiltersField()
    boosts: BoostsField = BoostsField()
    fallback: FallbackField = None


class ScoreRequest(Request):
    context: ContextField
    candidates: list[Text] = Field(description="The caller's own candidates.", min_length=1)


class LabelShape(BaseModel):
    kind: Literal["emotion", "intent", "topic"]
    name: str
    probability: float


class PlaceShape(BaseModel):
    rank: int
    score: float
    text: str
    pool: str
    id: str
    labels: list[LabelShape]


class RankAnswer(BaseModel):
    context: list[str]
    confidence: float | None = Field(
        description="Probability that the first place fits; null: not calibrated."
    )
    ranking: list[PlaceShape]


class RespondAnswer(BaseModel):
    text: str
    source: Literal["retrieved", "generated", "fixed"] = Field(
        description="fixed: a person's message, to a context that may be a crisis."
    )
    confidence: float | None = Field(description="Of a retrieved reply; null for others.")
    emotion: str | None = Field(description="The user's most probable emotion.")
    labels: list[LabelShape] = Field(description="What was predicted of the user, most probable first.")
    note: str = Field(description="What happened, such as that nothing fitted or the generator was busy.")
    pool: str | None
    id: str | None
    ranking: list[PlaceShape]


class ScoreAnswer(BaseModel):
    context: list[str]
    scores: list[float] = Field(description="One for each candidate, in the order given; larger is better.")


class PoolShape(BaseModel):
    name: str
    title: str
    licence: str
    commercial_use: bool
    is_sample: bool
    index: str
    candidates: int


class PoolsAnswer(BaseModel):
    pools: list[PoolShape]
    emotions: list[str] = Field(description="What `filters.emotions` may name.")
    intents: list[str] = Field(description="What `filters.intents` may name.")


class ErrorDetail(BaseModel):
    code: str = Field(description="Stable: for programs.", examples=["overloaded"])
    message: str = Field(description="For people.")


class ErrorAnswer(BaseModel):
    error: ErrorDetail


class HealthAnswer(BaseModel):
    status: Literal["ok"]
