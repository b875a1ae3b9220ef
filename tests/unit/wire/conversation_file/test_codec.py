import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.message_strategies import messages
from tests.torture import choose_size

from cllm.core.conversation import (
    Branch,
    ContextCommandRecord,
    ContextRecord,
    StoredConversation,
    SystemRecord,
    Turn,
    TurnFailure,
    WindowRecord,
)
from cllm.core.errors import BrokenConversationError, UsageError
from cllm.core.message import Message, plain_message
from cllm.core.notice import Notice
from cllm.core.reply import Usage
from cllm.stores.views import build_summary
from cllm.wire.conversation_file.codec import (
    ConversationFile,
    decode_conversation,
    decode_summary,
    encode_conversation,
)

NOW = datetime(2025, 10, 31, 12, 0, 0, 123456, tzinfo=UTC)
replace = msgspec.structs.replace


def decode(data: bytes | str | dict[str, Any], conversation_id: str = "demo") -> ConversationFile:
    if isinstance(data, dict):
        data = json.dumps(data, ensure_ascii=False)
    if isinstance(data, str):
        data = data.encode()
    return decode_conversation(
        data, conversation_id=conversation_id, path="demo.json", modified_at=NOW
    )


def summary(data: bytes, conversation_id: str = "demo"):
    return decode_summary(data, conversation_id=conversation_id, path="demo.json", modified_at=NOW)


def turn(turn_id: str, *texts: str, **fields: Any) -> Turn:
    roles = ("user", "assistant") * len(texts)
    messages = tuple(
        plain_message(role, text)  # type: ignore[arg-type]
        for role, text in zip(roles, texts, strict=False)
    )
    given: dict[str, Any] = {
        "place": turn_id,
        "state": "complete",
        "started_at": NOW,
        "messages": messages,
    }
    return Turn(id=turn_id, **(given | fields))


def conversation(*turns: Turn, **fields: Any) -> StoredConversation:
    given: dict[str, Any] = {"created_at": NOW, "updated_at": NOW, "model": "m", "turns": turns}
    return StoredConversation(id="demo", **(given | fields))


def file_without_records(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": "demo",
        "model": "gpt-4",
        "messages": list(messages),
        "created_at": "2025-10-31T12:00:00.123456Z",
        "updated_at": "2025-10-31T12:00:00.123456Z",
        "metadata": {"total_tokens": 150},
    } | fields


def edit_file(data: bytes, change) -> bytes:
    """The file after another tool has changed it."""
    document = json.loads(data)
    change(document)
    return json.dumps(document).encode()


TWO = conversation(turn("t1", "one", "1"), turn("t2", "two", "2"), turn("t3", "three", "3"))
ANTHROPIC = Message(
    role="assistant",
    dialect="anthropic",
    raw=b'{"role":"assistant","content":[{"type":"thinking","thinking":"..","signature":"s"},'
    b'{"type":"text","text":"ok"}]}',
)


def test_a_file_has_the_expected_json():
    original = conversation(
        turn("t1", "My cat is called Luna.", "Hé!", usage=Usage(input=3, output=4), model="m"),
        system=plain_message("system", "Be brief."),
        system_record=SystemRecord(policy="captured", source="settings"),
        context_record=ContextRecord(executed_at=NOW),
        title="My cat is called Luna.",
        metadata={"tags": ["a"]},
    )
    assert (
        encode_conversation(original).decode()
        == """\
{
  "id": "demo",
  "model": "m",
  "messages": [
    {
      "role": "system",
      "content": "Be brief."
    },
    {
      "role": "user",
      "content": "My cat is called Luna."
    },
    {
      "role": "assistant",
      "content": "Hé!"
    }
  ],
  "created_at": "2025-10-31T12:00:00.123456Z",
  "updated_at": "2025-10-31T12:00:00.123456Z",
  "metadata": {
    "total_tokens": 7,
    "system": {
      "policy": "captured",
      "source": "settings"
    },
    "context": {
      "executed_at": "2025-10-31T12:00:00.123456Z",
      "commands": []
    },
    "tags": [
      "a"
    ],
    "cllm": {
      "version": 1,
      "title": "My cat is called Luna.",
      "turns": [
        {
          "id": "t1",
          "messages": 2,
          "digest": "920318c784f3c942",
          "model": "m",
          "usage": {
            "input": 3,
            "output": 4
          },
          "started_at": "2025-10-31T12:00:00.123456Z"
        }
      ]
    }
  }
}
"""
    )


def test_a_system_prompt_adds_only_its_own_bytes():
    without = encode_conversation(TWO)
    prompt = plain_message("system", "x" * 1000)
    data = encode_conversation(replace(TWO, system=prompt))
    alone = b'    {\n      "role": "system",\n      "content": "' + b"x" * 1000 + b'"\n    },\n'
    assert data.replace(alone, b"") == without


PINNED = SystemRecord(policy="pinned", source="ConversationManager", prompt="Be kind.")


def test_a_pinned_prompt_is_stored_in_metadata_with_its_source():
    data = encode_conversation(replace(TWO, system_record=PINNED))

    document = json.loads(data)
    assert [message["role"] for message in document["messages"]] == ["user", "assistant"] * 3
    assert document["metadata"]["system"] == {
        "policy": "pinned",
        "source": "ConversationManager",
        "prompt": "Be kind.",
    }
    assert decode(data).conversation.kept_prompt == plain_message("system", "Be kind.")


def test_an_older_version_reads_a_pinned_file_without_loss():
    class OlderRecord(msgspec.Struct, frozen=True, kw_only=True):
        policy: str
        source: str | None = None

    raw = json.loads(encode_conversation(replace(TWO, system_record=PINNED)))["metadata"]["system"]

    assert msgspec.convert(raw, OlderRecord) == OlderRecord(
        policy="pinned", source="ConversationManager"
    )


def test_a_captured_file_has_no_pinned_prompt():
    record = SystemRecord(policy="captured", source="x")
    data = encode_conversation(replace(TWO, system_record=record))

    assert json.loads(data)["metadata"]["system"] == {"policy": "captured", "source": "x"}


def test_messages_contain_only_history_turns():
    failed = turn("t2", "two", state="failed", failure=TurnFailure(code="x", message="y"))
    running = turn("t3", "three", state="running")
    cut = turn("t4", "four", state="incomplete")
    original = conversation(turn("t1", "one", "1"), failed, cut, running)
    data = encode_conversation(original)
    assert [message["content"] for message in json.loads(data)["messages"]] == ["one", "1", "four"]
    assert decode(data).conversation == original


def test_variants_are_not_among_the_messages():
    original = conversation(turn("t1", "one", "1"), variants=(turn("t2", "one", "2", place="t1"),))
    data = encode_conversation(original)
    assert len(json.loads(data)["messages"]) == 2
    assert decode(data).conversation == original


def test_messages_keep_their_spelling():
    spelled = '{"role": "user", "content": "\\u00e9\\/é", "x": [1.50e3, 1e999, {}], "y": -0.0}'
    stored = decode('{"id":"demo","messages":[' + spelled.replace("1e999", "1E5") + "]}")
    (message,) = stored.conversation.messages
    assert message.raw.decode() == spelled.replace("1e999", "1E5").replace(": ", ":").replace(
        ", ", ","
    )
    again = decode(encode_conversation(stored.conversation, stored.remainder))
    assert again.conversation.messages == (message,)


def test_unknown_keys_survive():
    document = file_without_records({"role": "user", "content": "x"}, mine={"b": 1.50})
    document["metadata"] |= {
        "big": 12345678901234567890123,
        "system": {"policy": "captured", "source": None, "later": 1},
        "cllm": {"version": 1, "future": [1, 2]},
    }
    stored = decode(json.dumps(document).replace("1.5", "1.50"))
    data = encode_conversation(stored.conversation, stored.remainder)
    saved = json.loads(data)
    assert b"1.50" in data
    assert saved["mine"] == {"b": 1.5}
    assert list(saved) == [*list(document)]
    assert saved["metadata"]["big"] == 12345678901234567890123
    assert saved["metadata"]["system"]["later"] == 1
    assert saved["metadata"]["cllm"]["future"] == [1, 2]


def test_unchanged_metadata_keeps_its_spelling():
    stored = decode('{"id":"demo","messages":[],"metadata":{"a":1.50,"b":true}}')
    changed = replace(stored.conversation, metadata={"a": 1.5, "b": 1})
    section = encode_conversation(changed, stored.remainder)
    assert b'"a": 1.50,' in section
    assert b'"b": 1,' in section


def test_user_metadata_with_keys_of_cllm_is_stored_separately():
    mine = {"cllm": 1, "total_tokens": "many", "system": {"policy": "dynamic"}, "context": 3}
    original = conversation(metadata=mine, context_record=ContextRecord(executed_at=NOW))
    stored = decode(encode_conversation(original))
    assert stored.conversation == original
    assert summary(encode_conversation(original)).metadata == mine


def test_metadata_of_other_programs_with_keys_of_cllm_is_unchanged():
    document = file_without_records(metadata={"system": "be nice", "context": [1]})
    stored = decode(document)
    assert stored.conversation.metadata == {"system": "be nice", "context": [1]}
    assert stored.conversation.system_record is None
    saved = json.loads(encode_conversation(stored.conversation, stored.remainder))["metadata"]
    assert (saved["system"], saved["context"]) == ("be nice", [1])


def test_tokens_of_no_turn_are_preserved_in_the_total():
    stored = decode(file_without_records({"role": "user", "content": "x"}))
    more = replace(
        stored.conversation,
        turns=(*stored.conversation.turns, turn("t9", "y", usage=Usage(output=7))),
    )
    data = encode_conversation(more, stored.remainder)
    assert json.loads(data)["metadata"]["total_tokens"] == 157
    again = decode(data)
    assert again.remainder.base_tokens == 150
    assert (
        json.loads(encode_conversation(again.conversation, again.remainder))["metadata"][
            "total_tokens"
        ]
        == 157
    )


@pytest.mark.parametrize("total", ["many", -1, 1.5, None, True])
def test_an_invalid_token_total_is_ignored(total: Any):
    stored = decode(file_without_records(metadata={"total_tokens": total}))
    assert stored.remainder.base_tokens == 0


def test_a_file_without_records_has_turns():
    stored = decode(
        file_without_records(
            {"role": "system", "content": "S"},
            {"role": "user", "content": "a"},
            {"role": "user", "content": "b"},
            {"role": "assistant", "content": None, "tool_calls": []},
            {"role": "tool", "tool_call_id": "c", "content": "r"},
            {"role": "assistant", "content": "d"},
            {"role": "user", "content": "e"},
            {"role": "system", "content": "inside"},
            {"role": "function", "name": "f", "content": "f"},
        )
    ).conversation
    assert stored.system is not None
    assert stored.system.text == "S"
    assert [len(turn.messages) for turn in stored.turns] == [5, 3]
    assert [turn.state for turn in stored.turns] == ["complete", "complete"]
    assert [message.role for message in stored.turns[1].messages] == ["user", "system", "tool"]
    assert stored.turns[0].started_at == NOW


def test_messages_before_the_first_user_message_are_a_separate_turn():
    stored = decode(
        file_without_records(
            {"role": "developer", "content": "S"},
            {"role": "assistant", "content": "Welcome"},
            {"role": "user", "content": "a"},
        )
    ).conversation
    assert stored.system is not None
    assert (stored.system.role, stored.system.json()["role"]) == ("system", "developer")
    assert [len(turn.messages) for turn in stored.turns] == [1, 1]


def test_decoding_a_file_without_records_twice_gives_the_same_turns():
    document = file_without_records(*({"role": "user", "content": "x"}, {"role": "assistant"}) * 3)
    first = decode(document).conversation
    assert first == decode(document).conversation
    assert len({turn.id for turn in first.turns}) == 3


def test_a_system_message_of_a_turn_is_not_the_system_prompt():
    original = conversation(
        replace(turn("t1"), messages=(plain_message("system", "S"), plain_message("user", "u")))
    )
    data = encode_conversation(original)
    assert decode(data).conversation == original
    assert summary(data).message_count == 2


def test_a_system_message_added_manually_is_the_system_prompt():
    def change(document: dict[str, Any]) -> None:
        document["messages"].insert(0, {"role": "system", "content": "new"})

    read = decode(edit_file(encode_conversation(TWO), change)).conversation
    assert read.system is not None
    assert read.turns == TWO.turns


def test_an_edited_message_replaces_its_record():
    def change(document: dict[str, Any]) -> None:
        document["messages"][3]["content"] = "corrected"

    read = decode(edit_file(encode_conversation(TWO), change)).conversation
    assert (read.turns[0], read.turns[2]) == (TWO.turns[0], TWO.turns[2])
    assert [message.text for message in read.turns[1].messages] == ["two", "corrected"]
    assert read.turns[1].id not in {"t1", "t2", "t3"}


def test_other_turns_keep_their_records_after_a_deletion():
    def change(document: dict[str, Any]) -> None:
        del document["messages"][:2]

    read = decode(edit_file(encode_conversation(TWO), change)).conversation
    assert read.turns == TWO.turns[1:]


def test_appended_messages_are_a_new_turn():
    failed = turn("t4", "four", state="failed")
    original = replace(TWO, turns=(*TWO.turns, failed))

    def change(document: dict[str, Any]) -> None:
        document["messages"] += [
            {"role": "user", "content": "five"},
            {"role": "assistant", "content": "5"},
        ]

    read = decode(edit_file(encode_conversation(original), change)).conversation
    assert read.turns[:4] == original.turns
    assert [message.text for message in read.turns[4].messages] == ["five", "5"]


def test_turns_after_inserted_messages_keep_their_records():
    def change(document: dict[str, Any]) -> None:
        document["messages"][2:2] = [{"role": "user", "content": "more"}, {"role": "assistant"}]

    read = decode(edit_file(encode_conversation(TWO), change)).conversation
    assert (read.turns[0], *read.turns[2:]) == TWO.turns


def test_a_turn_with_inline_messages_is_never_skipped():
    failed = turn("t9", "nine", state="failed")
    original = conversation(failed, *TWO.turns[:1], replace(failed, id="t8", place="t8"))

    def change(document: dict[str, Any]) -> None:
        document["messages"][0]["content"] = "changed"

    read = decode(edit_file(encode_conversation(original), change)).conversation
    assert [turn.id for turn in read.turns if turn.state == "failed"] == ["t9", "t8"]

    def swap(document: dict[str, Any]) -> None:
        records = document["metadata"]["cllm"]["turns"]
        records.insert(0, {**records[1], "digest": "gone", "id": "t0"})

    read = decode(edit_file(encode_conversation(original), swap)).conversation
    assert [turn.id for turn in read.turns] == ["t9", "t1", "t8"]


def test_derived_turn_ids_are_unique():
    document = file_without_records({"role": "user", "content": "x"})
    derived = decode(document).conversation.turns[0].id
    document["metadata"]["cllm"] = {
        "variants": [{"id": derived, "started_at": "2025-01-01T00:00:00Z", "inline": []}]
    }
    read = decode(document).conversation
    assert read.variants[0].id != read.turns[0].id


def test_reformatted_json_is_the_same_conversation():
    original = conversation(
        replace(turn("t1", "one"), messages=(plain_message("user", "é\x7f"), ANTHROPIC))
    )
    data = json.dumps(json.loads(encode_conversation(original)), sort_keys=True, indent=4)
    assert "\\u00e9" in data
    read = decode(data).conversation
    assert [turn.id for turn in read.turns] == ["t1"]
    assert read.messages[0].text == "é\x7f"
    assert read.messages[1].dialect == "anthropic"
    assert read.messages[1].json() == ANTHROPIC.json()


def test_a_message_that_cannot_be_decoded_again_is_refused():
    cut = Message(role="user", raw=b'{"role":"user","content":"\\ud83d"}')
    for state in ("complete", "failed"):
        with pytest.raises(UsageError):
            encode_conversation(conversation(turn("t1", messages=(cut,), state=state)))
    thinking = b'{"role":"assistant","content":[],"x":"\\ud83d"}'
    for raw in (thinking, b'{"role":"assistant","content":"","x":"\xff"}', b"{"):
        reply = Message(role="assistant", dialect="anthropic", raw=raw)
        with pytest.raises(UsageError):
            encode_conversation(conversation(turn("t1", messages=(reply,))))
    with pytest.raises(UsageError):
        encode_conversation(conversation(title="\ud83d"))


def test_a_message_of_another_dialect_is_stored_with_its_original():
    original = conversation(
        replace(turn("t1", "one"), messages=(plain_message("user", "one"), ANTHROPIC))
    )
    data = encode_conversation(original)
    assert json.loads(data)["messages"][1] == {"role": "assistant", "content": "ok"}
    assert decode(data).conversation == original


def test_the_original_of_a_moved_message_is_found():
    original = conversation(
        turn("t0", "zero", "0"),
        replace(turn("t1", "one"), messages=(plain_message("user", "one"), ANTHROPIC)),
    )

    def change(document: dict[str, Any]) -> None:
        del document["messages"][:2]

    read = decode(edit_file(encode_conversation(original), change)).conversation
    assert read.turns == original.turns[1:]


@pytest.mark.parametrize("also", [[], [{"role": "assistant", "content": "ok"}] * 2])
def test_an_edited_text_replaces_the_original_of_another_dialect(also: list[Any]):
    original = conversation(
        replace(turn("t1", "one"), messages=(plain_message("user", "one"), ANTHROPIC))
    )

    def change(document: dict[str, Any]) -> None:
        document["messages"][1]["content"] = "edited"
        document["messages"] += also

    read = decode(edit_file(encode_conversation(original), change)).conversation
    assert [message.dialect for message in read.messages] == ["openai"] * (2 + len(also))
    assert read.messages[1].text == "edited"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-10-31T12:00:00Z", datetime(2025, 10, 31, 12, tzinfo=UTC)),
        ("2025-10-31T12:00:00.5", datetime(2025, 10, 31, 12, 0, 0, 500000, tzinfo=UTC)),
        ("2025-10-31T12:00:00.123456Z", NOW),
        ("2025-10-31T14:00:00+02:00", datetime(2025, 10, 31, 12, tzinfo=UTC)),
        ("2025-10-31 12:00:00", datetime(2025, 10, 31, 12, tzinfo=UTC)),
    ],
)
def test_times_are_read_in_common_formats(text: str, expected: datetime):
    read = decode(file_without_records(created_at=text, updated_at=text)).conversation
    assert (read.created_at, read.updated_at) == (expected, expected)


def test_a_file_without_times_has_its_modification_time():
    read = decode('{"id":"demo","messages":[]}').conversation
    assert (read.created_at, read.updated_at, read.model) == (NOW, NOW, None)
    later = NOW + timedelta(days=1)
    read = decode({"id": "demo", "messages": [], "updated_at": later.isoformat()}).conversation
    assert read.created_at == later


BROKEN: list[tuple[bytes | str | dict[str, Any], str]] = [
    ("", "incomplete"),
    ('{"id": "demo",\n  "messages": [},\n}', "line 2, column 16"),
    (b'{"id": "demo",\n"messages": ["\xff"]}', "not UTF-8, line 2, column 15"),
    ("[1]", "must be an object"),
    ("null", "must be an object"),
    ('{"id": "demo"}', "no messages"),
    ('{"messages": []}', "id differs from the file name"),
    (file_without_records(id="other"), "id differs from the file name"),
    (file_without_records(id=3), "id differs from the file name"),
    (file_without_records(messages={}), "messages"),
    (file_without_records({"role": "ghost"}), "role 'ghost'"),
    (file_without_records({"content": "x"}), "role"),
    (file_without_records({"role": 3}), "must be a string"),
    (file_without_records(messages=["x"]), "must be an object"),
    (file_without_records(model=3), "model is not a string"),
    (file_without_records(created_at="yesterday"), "created_at is not a time"),
    (file_without_records(updated_at=5), "updated_at is not a time"),
    (file_without_records(updated_at="0001-01-01T00:00:00+23:00"), "updated_at is not a time"),
    (file_without_records(metadata=[]), "metadata is not an object"),
    (file_without_records(metadata={"cllm": 3}), "metadata.cllm"),
    (file_without_records(metadata={"cllm": {"version": 2}}), "newer version of cllm"),
    (file_without_records(metadata={"cllm": {"turns": [1]}}), "metadata.cllm"),
    ('{"id":"demo","messages":[],"deep":' + "[" * 1_000_000 + "]" * 1_000_000 + "}", "deeply"),
]


@pytest.mark.parametrize(("data", "reason"), BROKEN)
def test_an_invalid_file_is_reported_with_the_reason(data: Any, reason: str):
    with pytest.raises(BrokenConversationError) as caught:
        decode(data)
    assert reason in caught.value.reason
    assert caught.value.path == "demo.json"


@pytest.mark.parametrize(
    "content", ['"\\ud800"', '"\\udc00"', "[1e999]", '{"type": "text", "text": "\\ud83d"}']
)
def test_invalid_text_is_reported(content: str):
    with pytest.raises(BrokenConversationError):
        decode('{"id":"demo","messages":[{"role":"user","content":' + content + "}]}")
    with pytest.raises(BrokenConversationError):
        decode('{"id":"demo","messages":[],"mine":' + content + "}")


@pytest.mark.parametrize("data", [data for data, _ in BROKEN], ids=[reason for _, reason in BROKEN])
def test_decode_summary_reports_the_same_files(data: Any):
    if isinstance(data, dict):
        data = json.dumps(data)
    raw = data if isinstance(data, bytes) else data.encode()
    with pytest.raises(BrokenConversationError):
        summary(raw)


@pytest.mark.parametrize(
    "field",
    [{"path_start": "xyz"}, {"path_start": 3}, {"is_side": "yes"}, {"parent": {"kind": "other"}}],
)
def test_an_invalid_record_of_a_recorded_conversation_is_reported(field: dict[str, Any]):
    with pytest.raises(BrokenConversationError, match=r"metadata\.cllm"):
        decode(file_without_records(metadata={"cllm": field}))


def test_a_recorded_conversation_stores_where_it_comes_from():
    recorded = conversation(
        turn("t1", "a", "b"),
        parent=Branch(conversation="main", sequence=4, kind="side"),
        family="claude-code:s1",
        source="claude-code",
        is_side=True,
        path_start=b"\x01\xff",
    )
    stored = json.loads(encode_conversation(recorded))["metadata"]["cllm"]
    assert stored["parent"] == {"conversation": "main", "sequence": 4, "kind": "side"}
    assert stored["family"] == "claude-code:s1"
    assert stored["source"] == "claude-code"
    assert stored["is_side"] is True
    assert stored["path_start"] == "01ff"


def test_a_plain_conversation_stores_no_field_of_recorded_ones():
    branch = conversation(turn("t1", "a", "b"), parent=Branch(conversation="main", sequence=2))
    stored = json.loads(encode_conversation(branch))["metadata"]["cllm"]
    assert stored.keys() == {"version", "parent", "turns"}
    assert stored["parent"] == {"conversation": "main", "sequence": 2}


def test_null_metadata_is_no_metadata():
    assert decode(file_without_records(metadata=None)).conversation.metadata == {}


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
TIMES = st.datetimes(
    min_value=NOW.replace(year=1970, tzinfo=None),
    max_value=NOW.replace(year=2100, tzinfo=None),
    timezones=st.just(UTC),
)


@st.composite
def odd_messages(draw: st.DrawFn) -> Message:
    """A message with fields of anybody's, and content that need not fit its dialect."""
    role = draw(st.sampled_from(["system", "user", "assistant", "tool"]))
    dialect = draw(st.sampled_from(["openai", "openai", "openai", "anthropic", "bedrock"]))
    fields = draw(st.dictionaries(TEXTS | st.just("dialect"), JSON, max_size=2))
    blocks = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=2)
    body = fields | {"role": role, "content": draw(TEXTS | blocks | st.none())}
    raw = msgspec.json.encode(body)
    return Message(role=role, raw=raw, dialect=dialect)  # type: ignore[arg-type]


MESSAGES = odd_messages() | messages()


@st.composite
def turns(draw: st.DrawFn, number: int) -> Turn:
    turn_id = f"t{number}"
    optional = {
        "ended_at": TIMES,
        "model": TEXTS,
        "provider": TEXTS,
        "usage": st.builds(Usage, input=st.integers(0, 9), estimated=st.booleans()),
        "cost": st.floats(0, 5),
        "window": st.builds(
            WindowRecord, first_sequence=st.integers(1, 9), sent_messages=st.integers(0, 9)
        ),
        "failure": st.builds(TurnFailure, code=TEXTS, message=TEXTS),
    }
    chosen: dict[str, Any] = {key: draw(st.none() | values) for key, values in optional.items()}
    return Turn(
        id=turn_id,
        place=draw(st.sampled_from([turn_id, "elsewhere"])),
        state=draw(st.sampled_from(["complete", "incomplete", "running", "failed"])),
        messages=tuple(draw(st.lists(MESSAGES, max_size=4))),
        started_at=draw(TIMES),
        notices=tuple(
            draw(st.lists(st.builds(Notice, code=TEXTS, message=TEXTS, path=TEXTS), max_size=1))
        ),
        **chosen,
    )


@st.composite
def conversations(draw: st.DrawFn) -> StoredConversation:
    count = draw(st.integers(0, 4))
    commands = st.builds(
        ContextCommandRecord, name=TEXTS, command=TEXTS, state=TEXTS, exit_code=st.none()
    )
    prompt = st.builds(plain_message, st.just("system"), TEXTS)
    return StoredConversation(
        id="demo",
        created_at=draw(TIMES),
        updated_at=draw(TIMES),
        model=draw(st.none() | TEXTS),
        name=draw(st.none() | TEXTS),
        title=draw(st.none() | TEXTS),
        system=draw(st.none() | prompt),
        system_record=draw(
            st.none()
            | st.builds(SystemRecord, policy=st.just("captured"), source=TEXTS)
            | st.builds(SystemRecord, policy=st.just("pinned"), source=TEXTS, prompt=TEXTS)
        ),
        context_record=draw(
            st.none()
            | st.builds(
                ContextRecord,
                executed_at=TIMES,
                commands=st.lists(commands, max_size=2).map(tuple),
            )
        ),
        turns=tuple(draw(turns(number)) for number in range(count)),
        variants=tuple(draw(turns(number)) for number in range(count, draw(st.integers(0, 2)))),
        parent=draw(
            st.none()
            | st.builds(
                Branch,
                conversation=TEXTS,
                sequence=st.integers(0, 9),
                kind=st.sampled_from(["branch", "compaction", "side"]),
            )
        ),
        family=draw(st.none() | TEXTS),
        source=draw(st.none() | TEXTS),
        is_side=draw(st.booleans()),
        path_start=draw(st.none() | st.binary(max_size=30)),
        archived_at=draw(st.none() | TIMES),
        metadata=draw(
            st.dictionaries(
                TEXTS | st.sampled_from(["cllm", "system", "total_tokens"]), JSON, max_size=2
            )
        ),
    )


@settings(max_examples=choose_size(20, 1000), deadline=None)
@given(conversations())
def test_a_written_conversation_is_read_back(original: StoredConversation):
    data = encode_conversation(original)
    stored = decode(data)
    assert stored.conversation == original
    assert encode_conversation(stored.conversation, stored.remainder) == data
    listed = summary(data)
    assert listed.message_count == original.message_count
    assert listed == build_summary(original)


@settings(max_examples=choose_size(20, 1000), deadline=None)
@given(conversations(), st.data())
def test_edited_messages_of_the_file_take_precedence(
    original: StoredConversation, data: st.DataObject
):
    document = json.loads(encode_conversation(original))
    listed = document["messages"]
    saved = data.draw(st.lists(st.sampled_from(range(len(listed))), max_size=6)) if listed else []
    document["messages"] = [listed[index] for index in saved]
    stored = decode(document)
    again = json.loads(encode_conversation(stored.conversation, stored.remainder))
    assert again["messages"] == document["messages"]
    assert summary(json.dumps(document).encode()).message_count == stored.conversation.message_count
    ids = [turn.id for turn in stored.conversation.turns]
    assert len(set(ids)) == len(ids)
    unsent = [turn for turn in original.turns if not turn.is_history]
    assert [turn for turn in stored.conversation.turns if not turn.is_history] == unsent
