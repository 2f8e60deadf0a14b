"""The command line as people type it, each command in a process of its own kind (in-process, captured)."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ranker.cli import main


class Done:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class Cli:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done:
        self._monkeypatch.setattr(sys, "argv", ["ranker", *arguments])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        captured = self._capsys.readouterr()
        code = stop.value.code
        return Done(code if isinstance(code, int) else 0, captured.out, captured.err)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(monkeypatch, capsys)


def one_line_error(done: Done) -> str:
    assert done.code == 1
    assert done.out == ""
    [line] = done.err.strip().splitlines()
    assert line.startswith("error: ")
    return line


def test_query_answers_as_json_in_a_pipe(cli: Cli) -> None:
    done = cli("query", "I finally got promoted at work!", "--k", "3")
    assert done.code == 0
    [ranking] = done.lines
    assert ranking["context"] == ["I finally got promoted at work!"]
    places = ranking["ranking"]
    assert isinstance(places, list)
    assert [place["rank"] for place in places] == [1, 2, 3]
    assert {"score", "text", "pool", "id", "labels"} <= set(places[0])


def test_query_as_a_table(cli: Cli) -> None:
    done = cli("query", "My dog died this morning.", "--no-json", "-k", "2")
    assert done.code == 0
    assert "reply" in done.out.splitlines()[0]


def test_query_reads_contexts_from_stdin(cli: Cli) -> None:
    lines = b'plain text\n["one turn", "another"]\n{"context": "from an object"}\n\nbroken \xff utf-8\n{x\n'
    done = cli("query", "-k", "1", stdin=lines)
    assert done.code == 0, done.err
    assert [ranking["context"] for ranking in done.lines] == [
        ["plain text"],
        ["one turn", "another"],
        ["from an object"],
        ["broken � utf-8"],
        ["{x"],
    ]


def test_query_merges_pools(cli: Cli) -> None:
    done = cli("query", "--pool", "ed", "--pool", "dailydialog", "-k", "50", "Where is the station?")
    pools = {place["pool"] for place in done.lines[0]["ranking"]}
    assert pools == {"ed", "dailydialog"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["query", ""], "the context is empty"),
        (["query", "  \n "], "the context is empty"),
        (["query", "hello", "--k", "0"], "k must be at least 1, not 0"),
        (["query", "hello", "--pool", "edd"], "no index called 'edd'. Did you mean 'ed'?"),
        (["query", "hello", "--encoder", "minii"], "no encoder called 'minii'"),
        (["build-index", "--pool", "redit"], "no pool called 'redit'. Did you mean 'reddit'?"),
        (["build-index", "--kind", "hnws"], "no kind of index called 'hnws'. Did you mean 'hnsw'?"),
        (["fetch", "nothing"], "no pool called 'nothing'"),
        (["fetch", "reddit"], "ranker import reddit"),
        (["import", "ed", "/does/not/exist"], "/does/not/exist"),
        (["add", "ed", "hello there"], "no index of yours called 'ed'"),
        (["remove", "ed"], "nothing to remove"),
        (["info", "nothing"], "no index called 'nothing'"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_mistakes_are_one_line(cli: Cli, arguments: list[str], message: str) -> None:
    assert message in one_line_error(cli(*arguments))


def test_usage_errors_exit_2(cli: Cli) -> None:
    assert cli("query", "--nonsense").code == 2
    assert cli("nonsense").code == 2


def test_debug_shows_the_traceback(cli: Cli) -> None:
    done = cli("--debug", "query", "")
    assert done.code == 1
    assert "Traceback" in done.err


@pytest.mark.parametrize("text", ["🎉🎉", "x" * 100_000, "caf\udce9", "a\x00b"])
def test_strange_text_is_answered(cli: Cli, text: str) -> None:
    done = cli("query", text, "-k", "1")
    assert done.code == 0, done.err
    assert len(done.lines) == 1


def test_build_add_remove_round_trip(cli: Cli, tmp_path: Path) -> None:
    replies = tmp_path / "replies.jsonl"
    replies.write_text(
        "".join(json.dumps({"text": f"Reply number {n} about gardens."}) + "\n" for n in range(20))
    )
    assert cli("import", "garden", str(replies), "--licence", "CC0-1.0").code == 0
    built = cli("build-index", "--pool", "garden")
    assert built.code == 0, built.err
    assert "20 candidates" in built.err
    new = "Roses need a lot of sun, so put them by the south wall."
    assert cli("add", "garden", new).code == 0
    first = cli("query", "--pool", "garden", "Where should I plant my roses?", "-k", "30").lines[0]["ranking"]
    assert first[0]["text"] == new
    assert len(first) == 21
    assert cli("remove", "garden", "--text", new).code == 0
    after = cli("query", "--pool", "garden", "Where should I plant my roses?", "-k", "30").lines[0]["ranking"]
    assert len(after) == 20
    assert new not in [place["text"] for place in after]


def test_build_index_says_that_it_is_the_sample(cli: Cli) -> None:
    done = cli("build-index", "--pool", "reddit", "--limit", "50")
    assert done.code == 0, done.err
    assert "bundled sample" in done.err
    assert "ranker import reddit PATH" in done.err


def test_pools_info_and_doctor(cli: Cli) -> None:
    assert {row["pool"] for row in cli("pools").lines} == {"ed", "dailydialog", "reddit"}
    [shown] = cli("info").lines
    assert {"home", "encoder", "indexes"} <= set(shown)
    manifest = cli("info", "ed").lines[0]
    assert manifest["name"] == "ed"
    done = cli("doctor", "--no-json")
    assert done.code == 0, done.out
    assert "bad" not in done.out


def test_doctor_finds_a_corrupt_index(cli: Cli, tmp_path: Path) -> None:
    assert cli("build-index", "--pool", "reddit", "--limit", "30").code == 0
    home = tmp_path / "home"
    victim = max(home.glob("indexes/reddit/v-*/*"), key=lambda file: file.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:-7])
    done = cli("doctor", "--no-json")
    assert done.code == 1
    assert "ranker build-index --pool reddit" in " ".join(done.out.split())
    assert "ranker build-index --pool reddit" in one_line_error(cli("query", "--pool", "reddit", "hello"))


def test_chat_remembers_and_explains(cli: Cli) -> None:
    said = b"My dog died this morning.\n:why\nHe was fourteen.\n:nonsense\n:reset\n:why\n\n:quit\n"
    done = cli("chat", stdin=said)
    assert done.code == 0
    replies = [line for line in done.out.splitlines() if "ranker>" in line]
    assert len(replies) == 2
    assert replies[0] != replies[1]
    assert "score" in done.out
    assert "Unknown command" in done.err
    assert "Nothing was said yet" in done.err
