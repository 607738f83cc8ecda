import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.report.exchange import (
    MAX_IMAGE_BYTES,
    MAX_TEXT,
    MAX_TURNS,
    ImageBudget,
    image_kind,
    image_part,
    output_parts,
    read_exchange,
    text_part,
    turns_of,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 40


def record(**fields: Any) -> dict[str, Any]:
    return {"output": None, "target": None, "artifacts": [], **fields}


def test_a_conversation_shows_roles_reasoning_calls_results_and_images() -> None:
    url = "data:image/png;base64," + base64.b64encode(PNG).decode()
    call = {"id": "1", "function": {"name": "search", "arguments": '{"q": "x"}'}}
    image = {"type": "image_url", "image_url": {"url": url}}
    turns = turns_of(
        [
            {"role": "user", "content": [{"type": "text", "text": "look"}, image]},
            {"role": "assistant", "reasoning_content": "hm", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "found"},
            {"role": "assistant", "content": "done", "refusal": "no"},
        ],
        ImageBudget(),
    )  # fmt: skip
    assert [turn.role for turn in turns] == ["user", "assistant", "tool", "assistant"]
    assert [part.kind for turn in turns for part in turn.parts] == [
        "text",
        "image",
        "reasoning",
        "call",
        "result",
        "text",
        "text",
    ]
    assert turns[1].parts[1].title == "search"
    assert turns[1].parts[1].text == '{"q": "x"}'
    assert turns[2].name == "1"
    assert turns[0].parts[1].text == url


def test_addresses_are_written_out_never_loaded() -> None:
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}]}
    part = turns_of([message], ImageBudget())[0].parts[0]
    assert part.kind == "note"
    assert "not loaded" in part.text


@pytest.mark.parametrize("data", [b"<svg onload=alert(1)>", b"<html>", b"", b"GIF8"])
def test_bytes_that_are_no_image_are_not_embedded(data: bytes) -> None:
    assert image_kind(data) is None
    assert image_part(data, ImageBudget(), "x").kind == "note"


def test_a_data_url_takes_its_type_from_its_bytes() -> None:
    url = "data:text/html;base64," + base64.b64encode(PNG).decode()
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    assert turns_of([message], ImageBudget())[0].parts[0].text.startswith("data:image/png;base64,")


def test_images_share_a_budget() -> None:
    budget = ImageBudget(left=2 * len(PNG))
    kinds = [image_part(PNG, budget, "x").kind for _ in range(3)]
    assert kinds == ["image", "image", "note"]
    assert image_part(PNG + b"0" * MAX_IMAGE_BYTES, ImageBudget(), "x").kind == "note"


def test_long_text_is_folded_and_cut_with_the_count_said() -> None:
    part = text_part("a" * (MAX_TEXT + 5))
    assert part.folded
    assert part.cut == 5
    assert not text_part("short").folded
    assert text_part("line\n" * 60).folded


def test_long_conversations_are_cut_with_the_count_said() -> None:
    turns = turns_of([{"role": "user", "content": "x"}] * (MAX_TURNS + 7), ImageBudget())
    assert len(turns) == MAX_TURNS + 1
    assert "7 further messages" in turns[-1].parts[0].text


def test_messages_inside_an_output_are_told_from_the_rest(tmp_path: Path) -> None:
    output = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "letter": "B"}
    found = read_exchange(tmp_path, record(output=json.dumps(output), target='"B"'), ImageBudget())
    assert [turn.role for turn in found.turns] == ["user", "assistant"]
    assert found.output[0].text == '{"letter": "B"}'
    assert found.target is not None
    assert found.target.text == "B"


def test_artifacts_give_images_and_transcripts_and_are_otherwise_named(tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts/look.png").write_bytes(PNG)
    (tmp_path / "artifacts/trace.jsonl").write_text('{"role": "user", "content": "hi"}\n')
    (tmp_path / "artifacts/data.bin").write_bytes(b"123")
    names = ["look.png", "trace.jsonl", "data.bin", "lost.txt"]
    artifacts = [{"path": f"artifacts/{name}", "bytes": 48, "sha256": ""} for name in names]
    found = read_exchange(tmp_path, record(artifacts=artifacts), ImageBudget())
    assert [image.kind for image in found.images] == ["image"]
    assert [turn.role for turn in found.turns] == ["user"]
    assert found.notes == ["artifacts/data.bin (3 bytes)", "artifacts/lost.txt is not in the run folder."]


@pytest.mark.parametrize("path", ["../outside.png", "/etc/hostname", "a/../../outside.png"])
def test_artifacts_outside_the_run_folder_are_not_read(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "outside.png").write_bytes(PNG)
    found = read_exchange(folder, record(artifacts=[{"path": path, "bytes": 1, "sha256": ""}]), ImageBudget())
    assert not found.images
    assert "not in the run folder" in found.notes[0]


def test_an_output_that_cannot_be_read_is_said_not_raised(tmp_path: Path) -> None:
    for text in ('{"$file": "missing.json"}', '{"$file": "../../etc/passwd"}', "{broken"):
        found = read_exchange(tmp_path, record(output=text), ImageBudget())
        assert found.output == []
        assert "could not be read" in found.notes[0]


def test_outputs_with_text_and_reasoning_keep_them_apart() -> None:
    parts = output_parts({"text": "B", "reasoning": "since", "stop_reason": "stop", "empty": []}, ImageBudget())
    assert [(part.kind, part.text) for part in parts] == [
        ("reasoning", "since"),
        ("text", "B"),
        ("data", '{"stop_reason": "stop"}'),
    ]


_keys = st.text() | st.sampled_from(["role", "content", "messages", "tool_calls"])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=12,
)


@given(_json)
def test_any_output_can_be_shown(value: Any) -> None:
    found = read_exchange(Path("/nowhere"), record(output=json.dumps(value), target=json.dumps(value)), ImageBudget())
    assert found.target is not None or value is None


@given(st.lists(_json, max_size=5))
def test_any_list_of_messages_can_be_shown(messages: list[Any]) -> None:
    assert len(turns_of(messages, ImageBudget())) == len(messages)
