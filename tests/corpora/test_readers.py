"""The readers on small files of each format, broken ones included, and on the real corpora."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ranker.corpora import Dialogue, ReadReport, candidates, check_raw, pairs, read_dialogues
from ranker.errors import CorpusError, NotFoundError
from ranker.types import Label

ED_HEADER = "conv_id,utterance_idx,context,prompt,speaker_idx,utterance,selfeval,tags\n"


def read(reader: str, path: Path, split: str = "train") -> tuple[list[Dialogue], ReadReport]:
    report = ReadReport()
    return list(read_dialogues(reader, path, split, report)), report


def texts(dialogue: Dialogue) -> list[str]:
    return [turn.text for turn in dialogue.turns]


class TestEmpatheticDialogues:
    def test_rows_become_dialogues(self, tmp_path: Path) -> None:
        (tmp_path / "train.csv").write_text(
            ED_HEADER
            + "c:1,1,joyful,I won_comma_ twice.,523,I won!_comma_ really,5|5|5_2|2|5,\n"
            + 'c:1,2,joyful,I won_comma_ twice.,17,A "quote is not special,5|5|5_2|2|5,\n'
            + "c:2,1,sad,Rain.,17,It rains.,,\n"
        )
        dialogues, report = read("empathetic_dialogues", tmp_path)
        first, second = dialogues
        assert texts(first) == ["I won!, really", 'A "quote is not special']
        assert [turn.speaker for turn in first.turns] == [0, 1]
        assert first.labels == (Label("emotion", "joyful"),)
        assert (first.id, first.situation) == ("c:1", "I won, twice.")
        assert texts(second) == ["It rains."]
        assert (report.rows, report.bad) == (3, 0)

    def test_inline_candidates_are_split_and_real_tags_are_not_candidates(self, tmp_path: Path) -> None:
        (tmp_path / "test.csv").write_text(
            ED_HEADER
            + "c:1,1,sad,p,0,Hello,,<HI>\n"
            + "c:1,2,sad,p,1,Yes,,Yes|No_comma_ thanks|Maybe\n"
            + "c:1,3,sad,p,0,Well,,<HI>,One|a_pipe_b\n"
        )
        (dialogue,), _ = read("empathetic_dialogues", tmp_path, "test")
        found = [pair.candidates for pair in pairs([dialogue])]
        assert found == [("Yes", "No, thanks", "Maybe"), ("One", "a|b")]
        assert dialogue.turns[0].candidates == ()

    def test_the_official_archive_has_a_folder_inside(self, tmp_path: Path) -> None:
        inner = tmp_path / "empatheticdialogues"
        inner.mkdir()
        (inner / "valid.csv").write_text(ED_HEADER + "c:1,1,sad,p,0,Hello,,\n")
        assert len(read("empathetic_dialogues", tmp_path, "valid")[0]) == 1
        assert len(read("empathetic_dialogues", inner / "valid.csv", "valid")[0]) == 1

    def test_bad_rows_are_counted_by_reason(self, tmp_path: Path) -> None:
        (tmp_path / "train.csv").write_bytes(
            ED_HEADER.encode()
            + b"c:1,1,sad,p,0,caf\xff \xed\xa0\x80 broken,,\n"
            + b"too,few\n\n"
            + b"c:1,x,sad,p,0,Hello,,\n"
            + b"c:1,2,sad,p,1,   ,,\n"
            + b"c:1,4,sad,p,1,Fine,,\r\n"
        )
        (dialogue,), report = read("empathetic_dialogues", tmp_path)
        assert [turn.speaker for turn in dialogue.turns] == [0, 1]
        assert dialogue.turns[0].text.startswith("caf\ufffd")
        assert (report.rows, report.bad) == (5, 3)
        assert report.reasons == {
            "without the 8 columns": 1,
            "without an utterance number": 1,
            "without text": 1,
        }
        assert report.summary().startswith("5 rows, 3 left out (1 without the 8 columns")


class TestDailyDialog:
    def write(self, folder: Path, split: str, text: str, **beside: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"dialogues_{split}.txt").write_text(text)
        for kind, content in beside.items():
            (folder / f"dialogues_{kind}_{split}.txt").write_text(content)

    def test_official_layout_with_acts_emotions_and_topics(self, tmp_path: Path) -> None:
        self.write(
            tmp_path / "ijcnlp_dailydialog" / "validation",
            "validation",
            "How are you , Jim ? __eou__ I don ' t know.Bad . __eou__\nHi __eou__\n",
            act="2 1 \n1\n",
            emotion="0 5 \n0\n",
            topic="1\n10\n",
        )
        (first, second), _ = read("dailydialog", tmp_path, "valid")
        assert texts(first) == ["How are you, Jim?", "I don't know. Bad."]
        assert first.labels == (Label("topic", "ordinary life"),)
        assert first.turns[0].labels == (Label("intent", "question"),)
        assert first.turns[1].labels == (Label("emotion", "sadness"), Label("intent", "inform"))
        assert second.labels == (Label("topic", "finance"),)

    def test_flat_layout_without_annotations(self, tmp_path: Path) -> None:
        self.write(tmp_path, "train", "One . __eou__ Two . __eou__ Three . __eou__\n")
        (dialogue,), _ = read("dailydialog", tmp_path)
        assert [turn.speaker for turn in dialogue.turns] == [0, 1, 0]
        assert all(turn.labels == () for turn in dialogue.turns)

    def test_annotations_that_do_not_match_are_not_guessed(self, tmp_path: Path) -> None:
        self.write(
            tmp_path,
            "train",
            "a b __eou__ c d __eou__\n __eou__ __eou__\ne __eou__ __eou__ f __eou__\n",
            act="1\n1 1\n1 2 3\n",
        )
        dialogues, report = read("dailydialog", tmp_path)
        assert [texts(dialogue) for dialogue in dialogues] == [["a b", "c d"], ["e", "f"]]
        assert dialogues[0].turns[0].labels == ()
        # The empty turn in the middle takes its own act and its speaker with it.
        assert dialogues[1].turns[1].labels == (Label("intent", "directive"),)
        assert [turn.speaker for turn in dialogues[1].turns] == [0, 0]
        assert report.reasons == {"without text": 1}
        assert sum(report.remarks.values()) == 1

    @pytest.mark.parametrize(
        ("raw", "shown"),
        [
            ("It ' s $ 5 , or 10 % .", "It's $5, or 10%."),
            ("That's fine . :) really ...", "That's fine. :) really..."),
            ("Let’s go 。", "Let's go."),
            ("I was born in the U.S.A. in 1990.", "I was born in the U.S.A. in 1990."),
            ("Nothing to change, isn't it?", "Nothing to change, isn't it?"),
        ],
    )
    def test_text_is_shown_as_people_write_it(self, tmp_path: Path, raw: str, shown: str) -> None:
        self.write(tmp_path, "train", f"{raw} __eou__\n")
        assert texts(read("dailydialog", tmp_path)[0][0]) == [shown]


class TestReddit:
    def test_table_with_header(self, tmp_path: Path) -> None:
        (tmp_path / "pairs.tsv").write_text(
            "source\tsubreddit\tprofane\tcontext\tresponse\n"
            'x\tNews\t0\tIt "rained\tAgain?\n'
            "x\tnews\t0\tonly context\n"
            "x\tnews\t0\t \tno context\n"
            "x\tnews\t0\tno response\t \n"
        )
        dialogues, report = read("reddit", tmp_path)
        assert [texts(dialogue) for dialogue in dialogues] == [['It "rained', "Again?"]]
        assert dialogues[0].labels == (Label("topic", "news"),)
        assert report.reasons == {
            "without the 5 columns": 1,
            "without a context": 1,
            "with an empty response": 1,
        }

    def test_two_columns_without_header(self, tmp_path: Path) -> None:
        (tmp_path / "mine.tsv").write_text("Hi\tHello\nBye\tCiao\n")
        assert [texts(dialogue) for dialogue in read("reddit", tmp_path)[0]] == [
            ["Hi", "Hello"],
            ["Bye", "Ciao"],
        ]

    def test_gzipped_json_lines_with_a_list_as_context(self, tmp_path: Path) -> None:
        rows = [
            {"context": ["a", "b", "c"], "response": "d"},
            {"context": "one", "response": "two", "subreddit": "Jokes"},
            {"context": {"no": 1}, "response": "x"},
            ["not", "an", "object"],
        ]
        with gzip.open(tmp_path / "pairs.jsonl.gz", "wt") as file:
            file.write("\n".join(map(json.dumps, rows)) + "\n{broken\n")
        dialogues, report = read("reddit", tmp_path)
        assert [texts(dialogue) for dialogue in dialogues] == [["a", "b", "c", "d"], ["one", "two"]]
        assert (report.rows, report.bad) == (5, 3)
        # A row is one pair: the turns of its context are not responses.
        found = list(pairs(dialogues))
        assert [(pair.context.turns, pair.response) for pair in found] == [
            (("a", "b", "c"), "d"),
            (("one",), "two"),
        ]
        assert [pair.provenance.turn for pair in found] == [4, 2]

    def test_truncated_gzip_keeps_what_can_be_read(self, tmp_path: Path) -> None:
        data = gzip.compress("".join(f"context {n}\tresponse {n * n}\n" for n in range(5000)).encode())
        (tmp_path / "pairs.tsv.gz").write_bytes(data[: len(data) // 2])
        dialogues, report = read("reddit", tmp_path)
        assert 100 < len(dialogues) < 5000
        assert report.reasons == {"in damaged gzip data": 1}


def test_chitchat_speakers_are_numbered_by_appearance(tmp_path: Path) -> None:
    rows = [
        {"id": "x", "turns": [["b", "Hi"], ["a", " "], ["a", "Hello"], ["b", "So"]]},
        {"turns": [["a", "Hi", "extra"]]},
        {"turns": []},
        {"id": "y"},
    ]
    (tmp_path / "chat.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (dialogue,), report = read("chitchat", tmp_path)
    assert [(turn.speaker, turn.text) for turn in dialogue.turns] == [(0, "Hi"), (1, "Hello"), (0, "So")]
    assert report.bad == 3


class TestGeneric:
    def test_json_lines(self, tmp_path: Path) -> None:
        rows: list[dict[str, object]] = [
            {"text": "Just a reply."},
            {
                "response": "Sure",
                "context": ["Can you?", ""],
                "labels": {"emotion": "content", "topic": ["a", "b"]},
            },
            {"text": "x", "labels": {"colour": "red"}},
            {"text": "x", "labels": ["joyful"]},
            {"text": 3},
        ]
        path = tmp_path / "mine.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)) + '\n{"text": "lone \\ud800 surrogate"}\n')
        (lone, answer, broken), report = read("generic", path)
        assert texts(lone) == ["Just a reply."]
        assert texts(answer) == ["Can you?", "Sure"]
        assert answer.labels == (Label("emotion", "content"), Label("topic", "a"), Label("topic", "b"))
        assert broken.turns[0].text == "lone ? surrogate"
        assert (report.rows, report.bad) == (6, 3)
        assert [pair.response for pair in pairs([lone, answer])] == ["Sure"]
        made = list(candidates([lone, answer], pool="mine", utterances="response"))
        assert [(candidate.id, candidate.text) for candidate in made] == [
            ("mine:mine:1:1", "Just a reply."),
            ("mine:mine:2:2", "Sure"),
        ]

    def test_csv_with_quotes_and_label_columns(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.csv"
        path.write_bytes(
            b'\xef\xbb\xbfText,Emotion\r\n"Hello, ""you""\nthere",joyful\r\nplain,\r\na,b,c\r\n'
            + b"x" * 200_000
            + b",sad\r\nlast,sad\r\n"
        )
        dialogues, report = read("generic", path)
        assert [texts(dialogue) for dialogue in dialogues] == [['Hello, "you" there'], ["plain"], ["last"]]
        assert [dialogue.labels for dialogue in dialogues] == [
            (Label("emotion", "joyful"),),
            (),
            (Label("emotion", "sad"),),
        ]
        assert report.reasons == {"without the 2 columns": 1, "not CSV": 1}

    def test_plain_lines_and_a_folder_of_several_files(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("One\n\nTwo\n")
        (tmp_path / "b.csv").write_text("response,context\nThree,Hm?\n")
        (tmp_path / "valid.txt").write_text("Held out\n")
        (tmp_path / "notes.md").write_text("Not a reply\n")
        assert [dialogue.turns[-1].text for dialogue in read("generic", tmp_path)[0]] == [
            "One",
            "Two",
            "Three",
        ]
        assert [texts(dialogue) for dialogue in read("generic", tmp_path, "valid")[0]] == [["Held out"]]

    def test_csv_without_the_columns(self, tmp_path: Path) -> None:
        (tmp_path / "mine.csv").write_text("name,age\nx,3\n")
        with pytest.raises(CorpusError, match="no column 'text' or 'response'"):
            read("generic", tmp_path)


class TestErrors:
    @pytest.mark.parametrize(
        "reader", ["empathetic_dialogues", "dailydialog", "reddit", "chitchat", "generic"]
    )
    def test_missing_files_are_named_before_anything_is_read(self, tmp_path: Path, reader: str) -> None:
        with pytest.raises(CorpusError, match="holds no"):
            read_dialogues(reader, tmp_path, "train", ReadReport())
        with pytest.raises(CorpusError, match=r"there is no .*nowhere"):
            read_dialogues(reader, tmp_path / "nowhere", "train", ReadReport())

    def test_a_file_without_a_usable_row(self, tmp_path: Path) -> None:
        (tmp_path / "train.csv").write_bytes(b"\x00\xff\xfe\x00 not,this\n" * 3)
        with pytest.raises(
            CorpusError, match=r"no usable row: 3 rows, 3 left out \(3 without the 8 columns\)"
        ):
            read("empathetic_dialogues", tmp_path)
        with pytest.raises(CorpusError, match="no usable row"):
            check_raw("empathetic_dialogues", tmp_path, "train")

    def test_an_empty_file(self, tmp_path: Path) -> None:
        (tmp_path / "mine.txt").write_bytes(b"")
        with pytest.raises(CorpusError, match="no usable row: 0 rows"):
            read("generic", tmp_path)

    def test_unknown_names_suggest_the_nearest(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match="Did you mean 'dailydialog'"):
            read("dailydialogue", tmp_path)
        with pytest.raises(NotFoundError, match="Did you mean 'train'"):
            read("reddit", tmp_path, "trian")


class TestRealCorpora:
    @pytest.mark.parametrize(
        ("split", "dialogues", "replies"), [("train", 19_532, 40_252), ("valid", 2_769, 5_736)]
    )
    def test_empathetic_dialogues(self, shared_data: Path, split: str, dialogues: int, replies: int) -> None:
        found, report = read("empathetic_dialogues", shared_data / "ed", split)
        assert len(found) == dialogues
        assert sum(1 for _ in pairs(found, listener_only=True)) == replies
        assert sum(1 for _ in candidates(found, pool="ed", utterances="listener")) == replies
        assert report.bad == 0
        assert len({dialogue.labels for dialogue in found}) == 32

    def test_dailydialog(self, shared_data: Path) -> None:
        found, report = read("dailydialog", shared_data / "dailydialog", "valid")
        assert (len(found), report.bad, report.remarks) == (1_000, 0, {})
        assert all(" ," not in turn.text for dialogue in found for turn in dialogue.turns)
        assert all(turn.labels for dialogue in found for turn in dialogue.turns)
