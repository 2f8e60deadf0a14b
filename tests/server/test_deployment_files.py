"""The files of serve/: well-formed, and in step with the server. No container is started here."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import yaml  # type: ignore[import-untyped] # its stubs are a package of their own

from ranker.server.metrics import Metrics

SERVE = Path(__file__).resolve().parents[2] / "serve"


class Start(Protocol):
    def __call__(self, lines: str, /) -> Any: ...


def read_yaml(name: str) -> Any:
    return yaml.safe_load((SERVE / name).read_text("utf-8"))


def expressions() -> Iterator[str]:
    board = json.loads((SERVE / "grafana/dashboards/ranker.json").read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "prometheus"
            yield target["expr"]


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    metrics = Metrics()
    for counter in (
        metrics.requests,
        metrics.rejections,
        metrics.fallbacks,
        metrics.reloads,
        metrics.generations,
        metrics.safety,
    ):
        counter.labels(*["x"] * len(counter._labelnames))
    for histogram in (metrics.latency, metrics.stages):
        histogram.labels("x")
    known = set(re.findall(r"^(\w+)", metrics.text().decode(), re.MULTILINE))
    asked = {name for expr in expressions() for name in re.findall(r"\branker_\w+", expr)}
    assert len(asked) >= 10
    assert asked - known == set()
    for expr in expressions():
        assert expr.count("(") == expr.count(")")


def test_compose_fits_its_files() -> None:
    services = read_yaml("compose.yaml")["services"]
    assert set(services) == {"ranker", "prometheus", "grafana"}
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert not source.startswith(".") or (SERVE / source).exists()
    build = services["ranker"]["build"]
    assert (SERVE / build["context"] / build["dockerfile"]).resolve() == SERVE / "Dockerfile"
    [job] = read_yaml("prometheus.yml")["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["ranker:8000"]}]
    [source] = read_yaml("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    assert (source["uid"], source["url"]) == ("prometheus", "http://prometheus:9090")
    [provider] = read_yaml("grafana/provisioning/dashboards/ranker.yaml")["providers"]
    mounts = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    assert mounts["./grafana/dashboards"] == provider["options"]["path"]


def test_the_image_copies_files_that_exist_and_runs_as_nobody_special() -> None:
    text = (SERVE / "Dockerfile").read_text("utf-8")
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (SERVE.parent / source).exists(), source
    assert text.count("\nFROM ") == 2
    assert text.index("\nUSER ranker") < text.index("\nENTRYPOINT")
    assert "\nHEALTHCHECK" in text


def test_the_unit_is_well_formed(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read(SERVE / "ranker.service", "utf-8")
    assert unit.sections() == ["Unit", "Service", "Install"]
    assert unit["Service"]["ExecStart"].split()[1:] == ["serve", "--config", "/etc/ranker/ranker.toml"]
    if shutil.which("systemd-analyze") is None:
        return
    checked = tmp_path / "ranker.service"
    text = (SERVE / "ranker.service").read_text("utf-8")
    checked.write_text(text.replace("/opt/ranker/bin/ranker", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", checked], capture_output=True, text=True, timeout=30)
    assert "ranker.service" not in done.stderr


def test_the_examples_run(start: Start) -> None:
    expected = {
        "chat.py": ["sorry about your dog.", "(kept, thank you)"],
        "openai_client.py": ["I am so sorry about your dog."],
        "curl.sh": ['"pools"', '"ranking"', '"source":"retrieved"', '"scores"'],
    }
    url = start('api_keys = ["secret"]\nfeedback = true').url
    for example, texts in expected.items():
        program = sys.executable if example.endswith(".py") else shutil.which("sh")
        if example == "curl.sh" and (program is None or shutil.which("curl") is None):
            continue
        done = subprocess.run(
            [str(program), str(SERVE / "examples" / example), url],
            input="my dog is ill\n!edit What does the vet say?\nhello again\n",
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"RANKER_API_KEY": "secret", "no_proxy": "127.0.0.1"},
        )
        assert done.returncode == 0, done.stderr
        for text in texts:
            assert text in done.stdout
