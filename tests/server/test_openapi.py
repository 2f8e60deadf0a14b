"""The OpenAPI document: checked in, current, and true."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, Phase, given, settings
from starlette.testclient import TestClient
from typer.testing import CliRunner

from ranker.cli.serve import serve
from ranker.config import read_toml
from ranker.engine import FallbackSettings
from ranker.generation import GenerationSettings
from ranker.safety import SafetySettings
from ranker.server import ServerSettings, openapi_json

ROOT = Path(__file__).resolve().parents[2]


def test_the_document_checked_in_is_current() -> None:
    checked_in = (ROOT / "serve" / "openapi.json").read_text("utf-8")
    assert checked_in == openapi_json(), "run: ranker serve --write-openapi serve/openapi.json"


def test_the_command_writes_it(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(serve)
    done = CliRunner().invoke(app, ["--write-openapi", str(tmp_path / "openapi.json")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "openapi.json").read_text("utf-8") == openapi_json()


def test_every_setting_is_in_the_commented_file(tmp_path: Path) -> None:
    """As a comment that tells the default, but for those that depend on the machine or are none."""
    file = ROOT / "serve" / "ranker.toml"
    tables: dict[str, Any] = {
        "server": ServerSettings,
        "fallback": FallbackSettings,
        "generation": GenerationSettings,
        "safety": SafetySettings,
    }
    assert read_toml(file) == {name: {} for name in tables}
    uncommented = tmp_path / "ranker.toml"
    uncommented.write_text(re.sub(r"^# (\w+ = )", r"\1", file.read_text("utf-8"), flags=re.MULTILINE))
    examples = {"home", "indexes", "encoder", "threads", "api_keys_file", "messages"}
    for table, shown in read_toml(uncommented).items():
        defaults = {field.name: field.default for field in fields(tables[table])}
        assert set(shown) == set(defaults) - set(tables)
        for name in set(shown) - examples:
            value = tuple(shown[name]) if isinstance(shown[name], list) else shown[name]
            assert value == defaults[name], name


def test_schemathesis_finds_no_server_error_and_true_shapes(client: TestClient) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    known = pytest.importorskip("schemathesis.specs.openapi.checks")
    # Not "what fits the schema is accepted": limits and names of pools are settings, not schema.
    checks = [
        known.status_code_conformance,
        known.content_type_conformance,
        known.response_schema_conformance,
    ]
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    bounded = settings(
        max_examples=6,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    seen: set[tuple[str, int]] = set()

    def holds(case: Any) -> None:
        sent = case.as_transport_kwargs(base_url="http://testserver")
        sent.pop("cookies", None)
        answer = client.request(**sent)
        seen.add((case.path, answer.status_code))
        assert answer.status_code < 500
        case.validate_response(answer, checks=checks)

    for found in schema.get_all_operations():
        strategy = found.ok().as_strategy()
        bounded(given(case=strategy)(holds))()
    paths = {path for path, _ in seen}
    assert paths == set(client.get("/openapi.json").json()["paths"])
