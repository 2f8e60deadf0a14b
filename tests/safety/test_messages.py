"""The messages that answer a crisis."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranker.errors import ConfigError
from ranker.safety import CATEGORIES, SafetySettings, fixed_message


def test_packaged_messages_name_help() -> None:
    messages = [fixed_message(category) for category in CATEGORIES]
    assert len(set(messages)) == 3
    for message in messages:
        assert "local emergency number" in message
        assert "\n" not in message
        assert "automated" in message
    assert "findahelpline.com" in fixed_message("self-harm")


def test_an_operators_messages(tmp_path: Path) -> None:
    file = tmp_path / "messages.toml"
    file.write_text('self-harm = "Call\\n us"\nviolence = "b"\nemergency = "c"\n', "utf-8")
    assert fixed_message("self-harm", file) == "Call us"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('self-harm = "a"\nviolence = "b"\n', "no message for 'emergency'"),
        ('self-harm = "a"\nviolence = " "\nemergency = "c"\n', "no message for 'violence'"),
        ('self-harm = 1\nviolence = "b"\nemergency = "c"\n', "no message for 'self-harm'"),
        ('self-harm = "a"\nviolence = "b"\nemergency = "c"\nfire = "d"\n', "unknown category 'fire'"),
        ("self-harm = ", "not valid TOML"),
    ],
)
def test_messages_that_cannot_be_used(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "messages.toml"
    file.write_text(content, "utf-8")
    with pytest.raises(ConfigError, match=message):
        fixed_message("emergency", file)


def test_no_messages_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        fixed_message("violence", tmp_path / "none.toml")


@pytest.mark.parametrize(
    "wrong",
    [{"crisis_threshold": 0.0}, {"crisis_threshold": 1.0}, {"reply_threshold": -1.0}, {"turns": 0}],
)
def test_settings_out_of_range(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"safety.{next(iter(wrong))}"):
        SafetySettings(**wrong)  # type: ignore[arg-type] # one of several fields, checked at run time
