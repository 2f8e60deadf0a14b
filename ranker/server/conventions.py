"""What the routes that other clients already speak take and give: OpenAI's, and Cohere's and Jina's rerank.

Their words are theirs. Keys that mean nothing here (temperature, user and so on) are taken and ignored.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from ranker.server.schemas import FallbackField, Text

MODEL = "ranker"
"""The engine's name as a model."""

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
ModelField = Annotated[str, Field(description=f"Always {MODEL!r}.", examples=[MODEL])]


class ContentPart(BaseModel):
    type: str
    text: str | None = None


class Message(BaseModel):
    role: Role
    content: str | list[ContentPart] | None = None


class StreamOptions(BaseModel):
    include_usage: bool | None = None


class ChatRequest(BaseModel):
    model: ModelField
    messages: list[Message] = Field(
        min_length=1, description="The last user and assistant turns are the context."
    )
    n: Annotated[int, Field(ge=1)] | None = Field(None, description="How many replies, best first.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    fallback: FallbackField = None


class Usage(BaseModel):
    """Counted in words: the ranker charges nobody."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatReply(BaseModel):
    role: Literal["assistant"]
    content: str


class ChatChoice(BaseModel):
    index: int
    message: ChatReply
    finish_reason: Literal["stop"]


class ReplyFacts(BaseModel):
    """What the ranker knows about the first choice; other clients skip it."""

    source: Literal["retrieved", "generated", "fixed"]
    confidence: float | None
    emotion: str | None
    pool: str | None
    id: str | None
    note: str


class ChatAnswer(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    ranker: ReplyFacts


class ModelShape(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelsAnswer(BaseModel):
    object: Literal["list"]
    data: list[ModelShape]


class EmbeddingsRequest(BaseModel):
    model: ModelField
    input: Text | Annotated[list[Text], Field(min_length=1)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(None, description="Only the encoder's own number will do.")
    input_type: Literal["context", "candidate"] = Field(
        "candidate", description="Whether the texts are encoded as contexts (of one turn) or as candidates."
    )


class EmbeddingShape(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    object: Literal["list"]
    data: list[EmbeddingShape]
    model: str
    usage: EmbeddingsUsage


class TextDocument(BaseModel):
    text: Text


class RerankRequest(BaseModel):
    model: str = MODEL
    query: Text | Annotated[list[str], Field(min_length=1)] = Field(
        description="The context: a text, or its turns, oldest first."
    )
    documents: list[Text | TextDocument] = Field(min_length=1, description="The candidates.")
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool = False


class RerankResult(BaseModel):
    index: int
    relevance_score: float = Field(description="The inner product of unit vectors, from -1 to 1.")
    document: TextDocument | None = None


class RerankAnswer(BaseModel):
    id: str
    model: str
    results: list[RerankResult]
    usage: EmbeddingsUsage
