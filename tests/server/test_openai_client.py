"""The stock `openai` client, and a plain HTTP client for rerank, against a real server process."""

from __future__ import annotations

from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from serving import Start

from ranker.encoders import HashingEncoder
from ranker.server.conventions import ChatAnswer, EmbeddingsAnswer, ModelsAnswer, RerankAnswer
from ranker.types import Context

DOG = "I am so sorry about your dog."


@pytest.fixture
def url(start: Start) -> str:
    return start('api_keys = ["secret"]').url


@pytest.fixture
def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0)


def test_a_chat_program(client: openai.OpenAI, url: str, tmp_path: Path) -> None:
    """All in one process, as it takes a second to start."""
    _chat(client)
    _stream(client)
    _models(client)
    _embeddings(client)
    _errors(client, url)
    _rerank(url)
    _shapes(url)


def _chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="ranker",
        messages=[
            {"role": "system", "content": "You are kind."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "I feel"}, {"type": "text", "text": "low"}],
            },
            {"role": "assistant", "content": "What happened?"},
            {"role": "user", "content": "my dog is very ill"},
        ],
        temperature=0.2,
        n=2,
    )
    assert answer.choices[0].message.content == DOG
    assert len(answer.choices) == 2
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 10
    assert answer.model_extra is not None
    assert answer.model_extra["ranker"]["id"] == "ed:1"


def _stream(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="ranker",
            messages=[{"role": "user", "content": "my dog is very ill"}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == DOG
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 7


def _models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["ranker"]
    assert client.models.retrieve("ranker").id == "ranker"


def _embeddings(client: openai.OpenAI) -> None:
    encoder, texts = HashingEncoder(), ["my dog", "an exam"]
    given = {
        "default": client.embeddings.create(model="ranker", input=texts),  # the client asks for base64
        "float": client.embeddings.create(model="ranker", input=texts, encoding_format="float"),
    }
    for answer in given.values():
        found = np.array([one.embedding for one in answer.data], dtype=np.float32)
        np.testing.assert_allclose(found, encoder.encode_candidates(texts), atol=1e-6)
    as_context = client.embeddings.create(
        model="ranker", input="my dog", dimensions=256, extra_body={"input_type": "context"}
    )
    expected = encoder.encode_contexts([Context.of("my dog")])[0]
    np.testing.assert_allclose(as_context.data[0].embedding, expected, atol=1e-6)


def _errors(client: openai.OpenAI, url: str) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "hi"}])
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.UnprocessableEntityError, match="only parts of type 'text'"):
        client.chat.completions.create(
            model="ranker",
            messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        )
    with pytest.raises(openai.UnprocessableEntityError, match="at least one of the role 'user'"):
        client.chat.completions.create(model="ranker", messages=[{"role": "system", "content": "x"}])
    with pytest.raises(openai.UnprocessableEntityError, match="the encoder has 256"):
        client.embeddings.create(model="ranker", input="x", dimensions=7)
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0).models.list()


def _rerank(url: str) -> None:
    documents = ["Nice parcel", {"text": DOG}, "What a party"]
    body = {"query": "my dog is ill", "documents": documents, "top_n": 2, "return_documents": True}
    answer = httpx.post(f"{url}/v1/rerank", json=body, headers={"Authorization": "Bearer secret"}).json()
    RerankAnswer.model_validate(answer, strict=True)
    assert answer["results"][0]["index"] == 1
    assert answer["results"][0]["document"] == {"text": DOG}
    assert len(answer["results"]) == 2


def _shapes(url: str) -> None:
    """The answers are as the OpenAPI document says."""
    with httpx.Client(base_url=url, headers={"X-Api-Key": "secret"}) as plain:
        chat = {"model": "ranker", "messages": [{"role": "user", "content": "hello"}]}
        ChatAnswer.model_validate(plain.post("/v1/chat/completions", json=chat).json(), strict=True)
        ModelsAnswer.model_validate(plain.get("/v1/models").json(), strict=True)
        embed = {"model": "ranker", "input": "x"}
        EmbeddingsAnswer.model_validate(plain.post("/v1/embeddings", json=embed).json(), strict=True)
