"""Patterns of crises and of replies that must not be shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranker.errors import ConfigError
from ranker.safety.patterns import breach, is_distant, read_patterns, stated, without_idioms
from ranker.safety.wording import plain_words


def statements(text: str) -> tuple[str, ...]:
    words = without_idioms(plain_words(text))
    return () if is_distant(words) else stated(words)


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("I want to kill myself", "self-harm"),
        ("i dont want to live anymore", "self-harm"),
        ("My friend says she wants to end her life", "self-harm"),
        ("im suicidal", "self-harm"),
        ("everyone would be better off without me", "self-harm"),
        ("she has been stockpiling tablets", "self-harm"),
        ("I won't be a burden on them much longer", "self-harm"),
        ("I keep thinking about walking into traffic", "self-harm"),
        ("i cut my arms when it gets too much", "self-harm"),
        ("I wish it had been me", "self-harm"),
        ("My husband hit me again", "violence"),
        ("he said he will kill me if I leave", "violence"),
        ("I'm going to kill my boss", "violence"),
        ("someone is breaking into my house", "violence"),
        ("My dad collapsed and isn't breathing", "emergency"),
        ("i took too many pills", "emergency"),
        ("our kitchen is on fire", "emergency"),
        ("please call an ambulance", "emergency"),
    ],
)
def test_plain_statements(text: str, category: str) -> None:
    assert category in statements(text)


@pytest.mark.parametrize(
    "text",
    [
        "This traffic is killing me",
        "I'd kill for a pizza",
        "My team got murdered last night",
        "I could have died of embarrassment",
        "My grandfather died last spring",
        "Suicide Squad is a fun movie",
        "The car has a dead battery",
        "I don't want to live in this city anymore",
        "She beats me at chess",
        "My boss fired me",
        "I was suicidal ten years ago, and I'm happy now",
        "I never want to hurt her",
        "I didn't want to die on that roller coaster",
        "The documentary was about a man who killed himself",
        "I can't breathe in this dress, it's so tight",
        "I owe nobody a cent, at last I can breathe",
        "My teacher is gonna kill me, I forgot the essay",
        "I cut my leg on a fence",
        "I was on the edge of my seat",
        "He left for good and took the dog",
    ],
)
def test_what_only_sounds_like_a_crisis(text: str) -> None:
    assert statements(text) == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("You're such an idiot.", "insult"),
        ("nobody likes you", "insult"),
        ("I will find you and hurt you.", "threat"),
        ("Just kill yourself already.", "self-harm"),
        ("the world would be better without you", "self-harm"),
        ("You should beat your wife.", "violence"),
        ("Women belong in the kitchen.", "hatred"),
        ("send nudes", "sexual"),
    ],
)
def test_breaches(text: str, reason: str) -> None:
    assert breach(plain_words(text)) == reason


@pytest.mark.parametrize(
    "text",
    [
        "You're not an idiot.",
        "I felt like such an idiot.",
        "He called you a pig? That's awful!",
        "The world would not be better without you.",
        "Please don't hurt yourself.",
        "You killed it!",
        "It's not your fault that he hit you.",
        "Will you go back to your country for the holidays?",
        "I know where you live, I can bring soup over!",
        "My mother had breast cancer.",
    ],
)
def test_kind_replies_pass(text: str) -> None:
    assert breach(plain_words(text)) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[words]\n",
        "[words]\n[patterns]\nx = ['(']\n",
        "[words]\n[patterns]\nx = ['<missing>']\n",
        "a = [",
    ],
)
def test_a_file_of_something_else(tmp_path: Path, content: str) -> None:
    file = tmp_path / "patterns.toml"
    file.write_text(content, "utf-8")
    with pytest.raises(ConfigError, match=r"patterns\.toml"):
        read_patterns(file)
