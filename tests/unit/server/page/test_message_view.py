"""Turns as values for templates: parts, tool calls, variants, bounds."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.hostile_texts import PIXEL
from tests.server_app import openai_messages

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import Message
from cllm.core.reply import Usage
from cllm.server.page.figures import UNKNOWN
from cllm.server.page.markdown import MAX_MARKDOWN
from cllm.server.page.message_view import (
    MAX_CUT,
    MAX_OUTPUT,
    RenderLimits,
    find_first_argument,
    format_json,
    format_seconds,
    list_facts,
    number_turns,
    replace_turn,
    view_turns,
)

START = datetime(2026, 11, 16, 12, tzinfo=UTC)


def make_turn(name: str, *raws: dict[str, Any], place: str | None = None, **fields) -> Turn:
    defaults = {"state": "complete", "started_at": START, "ended_at": START + timedelta(seconds=2)}
    return Turn(
        id=name, place=place or name, messages=openai_messages(*raws), **{**defaults, **fields}
    )


def view(*turns: Turn, variants: tuple[Turn, ...] = (), limits: RenderLimits | None = None):
    conversation = StoredConversation(
        id="c", created_at=START, updated_at=START, turns=turns, variants=variants
    )
    shown = list(number_turns(conversation))
    return view_turns(conversation, shown, public_id="c", limits=limits)


def user(content) -> dict[str, Any]:
    return {"role": "user", "content": content}


def reply(content, **fields) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def call(
    call_id: str, name: str = "ls", arguments: str = '{"path":"src","all":true}'
) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return reply(None, tool_calls=[{"id": call_id, "type": "function", "function": function}])


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


class TestMessages:
    def test_messages_are_numbered_and_system_messages_left_out(self):
        [turn] = view(
            make_turn("t", {"role": "system", "content": "SECRET"}, user("Hi"), reply("Hello"))
        )

        assert [(one.role, one.sequence, one.id) for one in turn.messages] == [
            ("user", 2, "t-1"),
            ("assistant", 3, "t-2"),
        ]
        assert "SECRET" not in str(turn.messages)

    def test_the_first_and_the_last_reply_are_marked(self):
        [turn] = view(make_turn("t", user("Hi"), call("1"), result("1", "x"), reply("Done")))

        marks = [(one.is_first_reply, one.is_last_reply) for one in turn.messages]
        assert marks == [(False, False), (True, False), (False, False), (False, True)]

    def test_the_text_of_a_person_has_its_line_breaks(self):
        [turn] = view(make_turn("t", user("one\ntwo"), reply("one\ntwo")))

        question, answer = (message.parts[0].html for message in turn.messages)
        assert "one<br />\ntwo" in question
        assert "one\ntwo" in answer

    def test_a_refusal_and_thinking_have_their_own_kinds(self):
        [turn] = view(make_turn("t", reply(None, refusal="No.", reasoning_content="Hm **m**")))

        kinds = {part.kind: part.html for part in turn.messages[0].parts}
        assert "<strong>m</strong>" in kinds["thinking"]
        assert "No." in kinds["refusal"]

    def test_a_message_that_cannot_be_read_is_shown_as_json(self):
        broken = Message(role="user", raw=b'{"role":"user","content":[{"type":7}]}')
        [turn] = view(msgspec.structs.replace(make_turn("t"), messages=(broken,)))

        [part] = turn.messages[0].parts
        assert part.kind == "unknown"
        assert "type" in part.html

    def test_images_of_allowed_types_are_shown(self):
        url = f"data:image/png;base64,{PIXEL}"
        [turn] = view(make_turn("t", user([{"type": "image_url", "image_url": {"url": url}}])))

        assert f'<img src="{url}"' in turn.messages[0].parts[0].html

    def test_an_image_beyond_the_limit_is_a_note(self):
        url = f"data:image/png;base64,{PIXEL}"
        message = user([{"type": "image_url", "image_url": {"url": url}}])
        [turn] = view(make_turn("t", message), limits=RenderLimits(media=10))

        assert "<img" not in turn.messages[0].parts[0].html
        assert "too large" in turn.messages[0].parts[0].html

    def test_an_image_of_another_type_is_downloaded(self):
        url = "data:image/svg+xml;base64,PHN2Zz48L3N2Zz4="
        [turn] = view(make_turn("t", user([{"type": "image_url", "image_url": {"url": url}}])))

        html = turn.messages[0].parts[0].html
        assert 'href="data:application/octet-stream;base64,PHN2Zz48L3N2Zz4="' in html
        assert 'download="image/svg+xml"' in html

    def test_a_remote_image_is_a_link(self):
        url = "https://a.example/x.png"
        [turn] = view(make_turn("t", user([{"type": "image_url", "image_url": {"url": url}}])))

        assert f'<a href="{url}"' in turn.messages[0].parts[0].html


class TestTools:
    def test_a_result_is_shown_at_its_call(self):
        [turn] = view(make_turn("t", user("Hi"), call("1"), result("1", "<b>a</b>"), reply("ok")))

        [part] = turn.messages[1].parts
        assert part.tool.name == "ls"
        assert part.tool.argument == "src"
        assert part.tool.state == "done"
        assert "&lt;b&gt;a&lt;/b&gt;" in part.tool.output[0]
        assert turn.messages[2].parts == ()

    def test_the_duration_is_the_time_until_the_next_turn(self):
        later = START + timedelta(seconds=3.5)
        first, _ = view(
            make_turn("t", user("Hi"), call("1")),
            make_turn("u", result("1", "x"), reply("ok"), started_at=later),
        )

        assert first.messages[1].parts[0].tool.seconds == "1.5 s"

    def test_two_calls_with_one_id_have_their_own_results(self):
        first, second = view(
            make_turn("t", call("1"), result("1", "one")),
            make_turn("u", call("1"), result("1", "two")),
        )

        assert "one" in first.messages[0].parts[0].tool.output[0]
        assert "two" in second.messages[0].parts[0].tool.output[0]

    @pytest.mark.parametrize(("state", "shown"), [("running", "running"), ("complete", "open")])
    def test_a_call_without_result_has_a_state(self, state, shown):
        [turn] = view(make_turn("t", call("1"), state=state))

        assert turn.messages[0].parts[0].tool.state == shown

    def test_a_result_without_call_is_shown_alone(self):
        [turn] = view(make_turn("t", result("1", "x"), reply("ok")))

        assert turn.messages[0].parts[0].tool.name == "Tool result"

    @pytest.mark.parametrize(
        ("arguments", "shown"),
        [
            ('{"a": "x\\ny"}', "x y"),
            ('{"a": [1, 2]}', "[1,2]"),
            ("{}", ""),
            ("not json", "not json"),
            ("[1]", "[1]"),
            ('{"a": "' + "x" * 200 + '"}', "x" * 79 + "…"),
            ("[" * 100_000, "[" * 79 + "…"),
        ],
    )
    def test_the_first_argument_is_on_one_line(self, arguments, shown):
        assert find_first_argument(arguments) == shown

    def test_json_is_indented_if_it_is_short(self):
        assert format_json('{"a":1}') == '{\n  "a": 1\n}'
        assert format_json("x") == "x"
        assert format_json("1" * (MAX_OUTPUT + 1)) == "1" * (MAX_OUTPUT + 1)


class TestBounds:
    def test_a_long_text_is_cut_and_plain(self):
        [turn] = view(make_turn("t", user("**a**" + "x" * MAX_MARKDOWN)))

        [part] = turn.messages[0].parts
        assert part.missing == 5
        assert "**a**" in part.html

    def test_a_whole_text_is_not_cut(self):
        [turn] = view(
            make_turn("t", user("x" * (MAX_MARKDOWN + 1))), limits=RenderLimits(is_whole=True)
        )

        assert turn.messages[0].parts[0].missing == 0

    def test_texts_beyond_the_limit_are_short(self):
        limits = RenderLimits(text=10)
        turns = view(
            make_turn("t", user("**a**" * 10)), make_turn("u", user("**b**" * 1000)), limits=limits
        )

        assert "<strong>" in turns[0].messages[0].parts[0].html
        last = turns[1].messages[0].parts[0]
        assert last.missing == 5000 - MAX_CUT
        assert "<strong>" not in last.html

    def test_a_long_output_is_cut_with_a_note(self):
        [turn] = view(make_turn("t", call("1"), result("1", "x" * (MAX_OUTPUT + 7))))

        assert "7 more characters" in turn.messages[0].parts[0].tool.output[0]


class TestTurns:
    def test_variants_have_positions_and_neighbours(self):
        chosen = make_turn("b", user("Hi"), reply("two"), place="a")
        others = tuple(
            make_turn(name, user("Hi"), reply(name), place="a", started_at=START + offset)
            for name, offset in (("a", -timedelta(1)), ("c", timedelta(1)))
        )

        [turn] = view(chosen, variants=others)

        steps = turn.variants
        assert (steps.number, steps.count) == (2, 3)
        assert (steps.previous_url, steps.next_url) == ("/c/c/t/a", "/c/c/t/c")
        assert not turn.is_variant

    def test_a_variant_replaces_its_turn_without_numbers(self):
        chosen = make_turn("b", user("Hi"), reply("two"), place="a")
        variant = make_turn("a", user("Hi"), reply("one"))
        conversation = StoredConversation(
            id="c", created_at=START, updated_at=START, turns=(chosen,), variants=(variant,)
        )
        shown = replace_turn(number_turns(conversation), variant)

        [turn] = view_turns(conversation, shown, public_id="c")

        assert turn.is_variant
        assert [message.sequence for message in turn.messages] == [None, None]
        assert "one" in turn.messages[1].parts[0].html

    def test_facts_are_those_that_are_known(self):
        usage = Usage(input=1_000, output=200)
        turn = make_turn("t", model="gpt-4o", usage=usage, cost=0.004)
        unknown = make_turn("t", usage=usage, ended_at=None)

        assert list(list_facts(turn)) == ["gpt-4o", "2.0 s", "1.2k tokens", "$0.004"]
        assert list(list_facts(unknown)) == ["1.2k tokens", UNKNOWN]

    @pytest.mark.parametrize(
        ("seconds", "shown"),
        [(-1, ""), (0.25, "250 ms"), (12.34, "12.3 s"), (125, "2 min 5 s")],
    )
    def test_durations(self, seconds, shown):
        assert format_seconds(seconds) == shown
