"""Digests of paths: what changes them and what does not, and that hostile input has one."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cllm.core.conversation import INJECTED, StoredConversation, Turn
from cllm.core.message import Dialect, Message, Role
from cllm.wire import path_digest
from cllm.wire.path_digest import (
    ROOT,
    VERSION,
    describe_client_prompt,
    digest_path,
    digest_turns,
    have_same_meaning,
    is_cut_short,
    meaning_of,
    read_content,
    trace_paths,
)

TIME = datetime(2026, 11, 16, tzinfo=UTC)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=6), min_size=1, max_size=6)


def make(role: Role, body: Any, dialect: Dialect = "openai") -> Message:
    return Message(role=role, raw=json.dumps(body).encode(), dialect=dialect)


def user(content: Any, dialect: Dialect = "openai") -> Message:
    return make("user", {"role": "user", "content": content}, dialect)


def reply(content: Any, dialect: Dialect = "openai", **fields: Any) -> Message:
    return make("assistant", {"role": "assistant", "content": content, **fields}, dialect)


def text(value: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **fields}


def call(id_: str = "call_1", name: str = "read", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content: Any = "4", id_: str = "call_1") -> Message:
    return make("tool", {"role": "tool", "tool_call_id": id_, "content": content})


def tool_use(id_: str = "call_1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": "read", "input": {}, **fields}


def tool_result(id_: str = "call_1", content: Any = "4", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **fields}


def last(*messages: Message) -> bytes:
    return digest_path(messages)[-1]


MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
OPENAI_PATH = (
    user("look"),
    reply("I will look.", tool_calls=[call()]),
    result(),
    reply("It is four."),
)


class TestFormats:
    def test_the_protocol_does_not_matter(self):
        anthropic = (
            user([text("look")], "anthropic"),
            reply([text("I will look."), tool_use()], "anthropic"),
            user([tool_result()], "anthropic"),
            reply([text("It is four.")], "anthropic"),
        )
        responses = (
            user([{"type": "input_text", "text": "look"}], "responses"),
            reply(
                [
                    {"type": "reasoning", "summary": []},
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "I will look."}],
                    },
                    {"type": "function_call", "call_id": "call_1", "name": "read"}
                    | {"arguments": "{}"},
                ],
                "responses",
            ),
            make(
                "tool",
                {
                    "role": "tool",
                    "content": [
                        {"type": "function_call_output", "call_id": "call_1", "output": "4"}
                    ],
                },
                "responses",
            ),
            reply("It is four.", "responses"),
        )
        assert digest_path(anthropic) == digest_path(OPENAI_PATH) == digest_path(responses)

    @given(st.lists(TEXTS.filter(str.strip), min_size=1, max_size=4))
    def test_a_text_can_be_a_string_or_a_block(self, values: list[str]):
        for dialect in ("openai", "anthropic"):
            strings = [user(value, dialect) for value in values]
            blocks = [user([text(value, **MARK)], dialect) for value in values]
            assert digest_path(strings) == digest_path(blocks)

    def test_the_order_of_keys_does_not_matter(self):
        one = Message(role="user", raw=b'{"role":"user","content":[{"type":"text","text":"a"}]}')
        two = Message(role="user", raw=b'{"content":[{"text":"a","type":"text"}], "role":"user"}')
        assert last(one) == last(two)

    @pytest.mark.parametrize("content", ["", None, []])
    def test_null_and_empty_fields_do_not_matter(self, content: Any):
        absent = make("assistant", {"role": "assistant", "tool_calls": [call()]})
        assert last(reply(content, tool_calls=[call()], refusal=None)) == last(absent)

    def test_no_tool_calls_can_be_an_empty_list_or_null(self):
        assert last(reply("a", tool_calls=[])) == last(reply("a", tool_calls=None))
        assert last(reply("a", tool_calls=[])) == last(reply("a"))

    @given(st.lists(st.booleans(), min_size=3, max_size=3))
    def test_cache_marks_do_not_matter(self, marked: list[bool]):
        one, two, three = (MARK if mark else {} for mark in marked)
        path = (
            user([text("a", **one)], "anthropic"),
            reply([text("b", **two), tool_use()], "anthropic"),
            user([tool_result(**three)], "anthropic"),
        )
        bare = (
            user("a", "anthropic"),
            reply([text("b"), tool_use()], "anthropic"),
            user([tool_result()], "anthropic"),
        )
        assert digest_path(path) == digest_path(bare)

    def test_reasoning_does_not_matter(self):
        thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
        assert last(reply([thinking, text("a")], "anthropic")) == last(reply("a"))
        assert last(reply("<think>\nhm\n</think>\n\na")) == last(reply("a"))
        assert last(reply("<think> a")) != last(reply("a"))
        assert last(reply("a", reasoning_content="hm")) == last(reply("a"))

    def test_the_content_of_replies_can_be_split_into_messages(self):
        one = last(user("a"), reply("b", tool_calls=[call()]))
        assert last(user("a"), reply("b"), reply(None, tool_calls=[call()])) == one

    def test_results_can_be_in_one_message_or_several(self):
        both = user([tool_result("call_1"), tool_result("call_2")], "anthropic")
        assert last(both) == last(result(id_="call_1"), result(id_="call_2"))
        assert last(both) == last(result(id_="call_2"), result(id_="call_1"))


class TestWhiteSpace:
    @given(WORDS, st.sampled_from(["", " ", "\n", "  \n\n"]))
    def test_space_around_user_text_does_not_matter(self, words: list[str], space: str):
        value = " ".join(words)
        assert last(user(f"{space}{value}{space}")) == last(user(value))

    @given(WORDS, st.sampled_from([" ", "\n", " \n "]))
    def test_space_in_replies_does_not_matter(self, words: list[str], space: str):
        assert last(reply(space.join(words))) == last(reply(" ".join(words)))

    def test_space_in_user_text_matters(self):
        assert last(user("a b")) != last(user("ab"))

    def test_a_blank_text_is_no_text(self):
        assert last(user([text(" "), text("a")])) == last(user("a"))
        assert digest_path([reply(" \n")]) == [ROOT]


class TestReminders:
    REMINDER = "<system-reminder>\nToday is Monday.\n</system-reminder>"

    def test_a_reminder_does_not_matter(self):
        plain = last(user("a"))
        assert last(user([text(self.REMINDER), text("a")])) == plain
        assert last(user(f"{self.REMINDER}\n\na")) == plain
        assert last(user([text("a"), text(self.REMINDER)])) == plain

    def test_a_message_with_only_a_reminder_matters(self):
        assert digest_path([user("a"), user(self.REMINDER)])[-1] != last(user("a"))

    def test_text_between_two_reminders_matters(self):
        one = last(user(f"{self.REMINDER} yes {self.REMINDER}"))
        assert one == last(user("yes"))
        assert one != last(user(f"{self.REMINDER} no {self.REMINDER}"))

    def test_a_reminder_without_an_end_matters(self):
        assert last(user("<system-reminder> a")) != last(user("<system-reminder> b"))

    def test_a_reminder_in_a_reply_matters(self):
        assert last(reply(self.REMINDER)) != ROOT


class TestInjectedPairs:
    @pytest.mark.parametrize("start", INJECTED)
    def test_a_pair_does_not_matter_wherever_it_is(self, start: str):
        pair = (user(f"{start} and more"), reply("Ok."))
        plain = last(user("a"), reply("b"), user("c"))
        assert last(*pair, user("a"), reply("b"), user("c")) == plain
        assert last(user("a"), reply("b"), *pair, user("c")) == plain

    def test_the_next_reply_matters(self):
        pair = (user(f"{INJECTED[0]}"), reply("Ok."))
        assert last(*pair, reply("b")) == last(reply("b"))

    def test_such_a_message_with_another_reply_or_none_matters(self):
        message = user(f"{INJECTED[0]} Please write the docs.")
        assert last(message) != ROOT
        assert last(message, reply("I wrote them.")) != last(reply("I wrote them."))

    def test_the_words_later_in_a_message_are_no_pair(self):
        quoted = user(f"aider writes: {INJECTED[0]}")
        assert last(quoted) != ROOT
        assert last(quoted, reply("Ok.")) != last(quoted)


class TestTools:
    def test_arguments_and_results_do_not_matter(self):
        one = (reply(None, tool_calls=[call(arguments='{"a": 1}')]), result("4"))
        two = (reply(None, tool_calls=[call(arguments='{"b":2,"a":1}')]), result("cleared"))
        assert digest_path(one) == digest_path(two)

    def test_the_name_and_the_number_of_calls_matter(self):
        read = last(reply(None, tool_calls=[call()]))
        assert last(reply(None, tool_calls=[call(name="write")])) != read
        assert last(reply(None, tool_calls=[call(), call("call_2")])) != read

    def test_ids_change_only_the_last_bytes(self):
        one = last(user("a"), reply(None, tool_calls=[call("call_1")]), result())
        two = last(user("a"), reply(None, tool_calls=[call("call_2")]), result())
        assert one != two
        assert meaning_of(one) == meaning_of(two)
        assert len(one) == 25


class TestMeaning:
    @given(WORDS, WORDS)
    def test_other_words_change_the_digest_of_this_and_all_later_messages(
        self, one: list[str], two: list[str]
    ):
        first, second = " ".join(one), " ".join(two)
        rest = [reply("same"), user("same too")]
        paths = [digest_path([user(value), *rest]) for value in (first, second)]
        same = [a == b for a, b in zip(*paths, strict=True)]
        assert same == [first == second] * 3
        replies = last(reply(first)) == last(reply(second))
        assert replies == ("".join(one) == "".join(two))

    def test_the_role_matters(self):
        assert last(user("a")) != last(reply("a"))

    def test_images_and_documents_matter(self):
        def image(data: str) -> dict[str, Any]:
            return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}

        def document(data: str) -> dict[str, Any]:
            source = {"type": "base64", "media_type": "application/pdf", "data": data}
            return {"type": "document", "source": source}

        assert last(user([image("AAAA")])) != last(user([image("BBBB")]))
        one, two = (user([document(data)], "anthropic") for data in ("AAAA", "BBBB"))
        assert last(one) != last(two)

    def test_unknown_blocks_of_users_matter_but_not_the_order_of_their_keys(self):
        blocks = ({"type": "new", "a": 1, "b": 2}, {"b": 2, "a": 1, "type": "new"})
        one, two = (user([block], "anthropic") for block in blocks)
        assert last(one) == last(two)
        assert last(one) != last(user([{"type": "new", "a": 2, "b": 2}], "anthropic"))

    def test_system_messages_do_not_matter(self):
        system = make("system", {"role": "system", "content": "Be brief."})
        developer = make("system", {"role": "developer", "content": "Be brief."})
        assert digest_path([system]) == [ROOT]
        assert last(system, user("a"), developer) == last(user("a"))

    @given(st.lists(TEXTS, max_size=6), st.integers(0, 6))
    def test_a_path_continues_from_its_digest(self, values: list[str], index: int):
        messages = [user(value) for value in values]
        digests = digest_path(messages)
        start = digests[index - 1] if 0 < index <= len(digests) else ROOT
        rest = messages[index:] if 0 < index <= len(digests) else messages
        assert digest_path(rest, start) == digests[len(messages) - len(rest) :]

    def test_have_same_meaning(self):
        assert have_same_meaning(user("a "), user([text("a")]))
        assert not have_same_meaning(user("a"), user("b"))


class TestCutReplies:
    @pytest.mark.parametrize(
        ("part", "is_cut"),
        [
            ("one ", True),
            ("one\ntwo", True),
            ("", True),
            ("one two three", False),
            ("two", False),
            ("one two three four", False),
        ],
    )
    def test_a_beginning_of_the_text_is_cut_short(self, part: str, is_cut: bool):
        assert is_cut_short(reply(part), reply("one two three")) == is_cut

    def test_a_reply_without_its_calls_is_cut_short(self):
        whole = reply("look", tool_calls=[call()])
        assert is_cut_short(reply("look"), whole)
        assert not is_cut_short(whole, reply("look"))
        assert not is_cut_short(reply("look", tool_calls=[call()]), whole)


DEEP = b'{"role":"user","content":' + b"[" * 5000 + b"]" * 5000 + b"}"


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "bedrock", "responses"])
@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b'{"role":"user","content":7}',
        b'{"role":"user","content":[7, null, "a"]}',
        b'{"role":"user","content":[{"type":7}]}',
        b'{"role":"user","content":[{"type":"text","text":null}]}',
        b'{"role":"user","content":"\\ud800"}',
        b'{"role":"user","content":"\xff\xfe"}',
        b'{"role":"assistant","tool_calls":[{"id":7}]}',
        b'{"role":"assistant","content":[{"type":"tool_use"}]}',
        b'{"content":[{"type":"new","n":1e999}]}',
        DEEP,
        b'{"content":[{"type":"new","deep":' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}]}",
    ],
)
def test_hostile_messages_have_a_digest(raw: bytes, role: Role, dialect: Dialect):
    message = Message(role=role, raw=raw, dialect=dialect)
    one = digest_path([message, user("a")])
    assert [len(digest) for digest in one] == [25, 25]
    assert one == digest_path([message, user("a")])
    assert have_same_meaning(message, message)
    is_cut_short(message, message)
    describe_client_prompt((read_content(message).whole,), None)


def test_unreadable_messages_differ():
    one, two = (Message(role="user", raw=raw) for raw in (b"{", b"{{"))
    assert last(one) != last(two)


def test_a_huge_message_has_a_digest():
    huge = "word " * 2_000_000
    assert last(user(huge)) == last(user(f" {huge}"))
    assert last(user(huge)) != last(user(f"{huge}!"))
    many, end = "<system-reminder>" * 200_000, "</system-reminder>"
    assert last(user(f"{many}{end} a")) == last(user("a"))
    assert last(user(many)) != ROOT
    assert last(user(end + many)) != last(user(end + many + "a"))


class TestTurns:
    def turn(self, name: str, *messages: Message, minute: int = 0, **fields: Any) -> Turn:
        turn = Turn(
            id=name,
            place=name,
            state="complete",
            messages=messages,
            started_at=TIME.replace(minute=minute),
        )
        return replace(turn, **fields)

    def conversation(self, **fields: Any) -> StoredConversation:
        return StoredConversation(id="demo", created_at=TIME, updated_at=TIME, **fields)

    def test_failed_turns_are_on_no_path_but_their_own(self):
        one = self.turn("t1", user("one"), reply("1"))
        failed = self.turn("t2", user("two"), state="failed")
        three = self.turn("t3", user("three"), reply("3"))
        stored = self.conversation(turns=(one, failed, three))
        digests = digest_turns(stored)
        assert digests["t3"] == digest_path([*one.messages, *three.messages])[2:]
        assert digests["t2"] == digest_path([*one.messages, *failed.messages])[2:]
        assert trace_paths(stored).path_to("t3") == ["t1", "t3"]

    def test_a_variant_follows_the_turn_before_its_slot(self):
        one = self.turn("t1", user("one"), reply("1"))
        two = self.turn("t2", user("two"), reply("2"))
        other = self.turn("t2b", user("two"), reply("other"), place="t2")
        stored = self.conversation(turns=(one, two), variants=(other,))
        assert digest_turns(stored)["t2b"] == digest_path([*one.messages, *other.messages])[2:]

    def test_a_turn_that_left_the_default_path_follows_the_turn_that_ran_before_it(self):
        old = self.turn("t1", user("one"), reply("1"), minute=1)
        left = self.turn("t2", user("two"), reply("2"), minute=2)
        new = self.turn("t1b", user("one"), reply("other"), place="t1", minute=3)
        stored = self.conversation(turns=(new,), variants=(old, left))
        assert trace_paths(stored).path_to("t2") == ["t1", "t2"]

    def test_a_side_conversation_continues_the_path_of_its_parent(self):
        start = last(user("one"), reply("1"))
        two = self.turn("t2", user("two"), reply("2"))
        stored = self.conversation(turns=(two,), path_start=start)
        assert digest_turns(stored)["t2"] == digest_path(two.messages, start)


# Stored digests are compared with new ones: a change of the algorithm needs another VERSION.
PINNED = [
    "01000000000000000000000000000000000000000000000000",
    "016bb52888a5b6eaaa7811b829ae42743b0000000000000000",
    "01730050480f16fe2f2497353cac4b6fcb9b8b4320cb061331",
    "017cd0421419728c229674f0c9838bfb7e9b8b4320cb061331",
    "01f76e1c18a544debb539889b26ea18d1f9b8b4320cb061331",
    "01f76e1c18a544debb539889b26ea18d1f9b8b4320cb061331",
    "01f76e1c18a544debb539889b26ea18d1f9b8b4320cb061331",
    "01b2655aacdf0aba586d378109c5ca26039b8b4320cb061331",
    "011e91416f778e81c090c54c66ffed40e99b8b4320cb061331",
    "012c76b143a47744d8fd5481fd7fd2f7ab9b8b4320cb061331",
]


def test_the_digests_of_version_1_do_not_change():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    path = [
        make("system", {"role": "system", "content": "Be brief."}),
        user(f"{TestReminders.REMINDER}\n\nlook"),
        reply("I will look.\n\n", reasoning_content="hm", tool_calls=[call(), call("call_2")]),
        result("4"),
        result("5", "call_2"),
        user(f"{INJECTED[0]}"),
        reply("Ok."),
        reply("It is four."),
        user([text("and this?"), image]),
        user([{"type": "new", "b": 1, "a": 2}], "anthropic"),
    ]
    assert VERSION == b"\x01"
    assert [digest.hex() for digest in digest_path(path)] == PINNED
    assert msgspec.json.encode(ROOT.hex()) == b'"01' + b"0" * 48 + b'"'


def test_the_memory_of_contents_is_bounded_and_changes_no_digest(monkeypatch: pytest.MonkeyPatch):
    path = [user(f"message {number}") for number in range(50)]
    expected = digest_path(path)
    recent = path_digest._RecentContents()
    monkeypatch.setattr(path_digest, "_recent", recent)
    monkeypatch.setattr(recent, "MAX_BYTES", 2000)
    assert digest_path(path) == expected
    assert digest_path(path) == expected
    assert recent._size <= 2000
    assert recent.get(path[-1]) is not None
    assert recent.get(path[0]) is None
