"""From a prompt to the bytes that leave: a request that the target takes, or one clear error."""

import asyncio
import itertools
import json
from typing import Any, NoReturn

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.message_strategies import messages
from tests.torture import choose_size

from cllm.core.errors import SettingsError, UnsendableError
from cllm.core.message import (
    AnyPart,
    Dialect,
    Document,
    Image,
    Message,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    plain_message,
)
from cllm.core.prompt import Prompt
from cllm.history.repair import accept_ordered_history
from cllm.history.rules import PROBLEM_MESSAGES, PROFILES, Profile, find_problems, profile_for
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.bedrock import AwsAccount, BedrockProvider
from cllm.providers.history import ADVICE, HistoryRepair, repair_for
from cllm.providers.http.provider import HttpProvider
from cllm.providers.openai import OpenAIProvider
from cllm.wire.anthropic.parts import encode_block
from cllm.wire.bedrock.parts import encode_blocks
from cllm.wire.convert import parts_of
from cllm.wire.messages import OutgoingMessage
from cllm.wire.openai.parts import encode_parts

MODELS = [
    ("anthropic", "claude-sonnet-4-5", None),
    ("anthropic", "claude-opus-4-6", None),
    ("anthropic", "claude-opus-4-8", None),
    ("bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", None),
    ("bedrock", "anthropic.claude-opus-4-6-v1", None),
    ("bedrock", "meta.llama3-3-70b-instruct-v1:0", None),
    ("bedrock", "amazon.nova-pro-v1:0", None),
    ("openai", "gpt-4o", None),
    ("openai", "some-model", "strict"),
]
DIALECTS: tuple[Dialect, ...] = ("openai", "anthropic", "bedrock")
HELLO = plain_message("user", "Hello")
RARELY = settings(
    max_examples=choose_size(8, 300), deadline=None, suppress_health_check=list(HealthCheck)
)


class Left(Exception):  # noqa: N818 - it is how a body gets here, no error
    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body


class NoWire:
    async def post(self, _url: str, *, body: bytes, **_: Any) -> NoReturn:
        raise Left(body)

    async def close(self) -> None:
        pass


def provider(target: str, profile: str | None = None) -> HttpProvider:
    wire: Any = NoWire()
    if target == "bedrock":
        return BedrockProvider(name="test", account=AwsAccount(bearer="k"), http=wire)
    if target == "anthropic":
        return AnthropicProvider(name="test", base_url="https://x", api_key="k", http=wire)
    return OpenAIProvider(
        name="test", base_url="https://x", api_key="k", http=wire, profile=profile
    )


def sent(prompt: Prompt, target: str, profile: str | None = None) -> dict[str, Any]:
    async def ask() -> None:
        async for _ in provider(target, profile).ask(prompt):
            pass

    with pytest.raises(Left) as left:
        asyncio.run(ask())
    body: dict[str, Any] = json.loads(left.value.body)
    return body


def read(body: dict[str, Any], target: Any) -> list[OutgoingMessage]:
    """The messages of a body as its own codec reads them."""
    roles: dict[str, Role] = {"developer": "system", "function": "tool"}
    found = []
    for fields in body["messages"]:
        role: Role = roles.get(fields["role"], fields["role"])
        raw = msgspec.json.encode(fields)
        message = Message(role=role, raw=raw, dialect=target)
        found.append(OutgoingMessage(role=role, parts=parts_of(message)))
    return found


def rules(target: Any, model: str, profile: str | None) -> Profile:
    return profile_for(target, model) if profile is None else PROFILES[profile]


IDS = st.sampled_from(["call_1", "call_2", "functions.Bash:0", "x" * 90, "", "é"])
TEXTS: st.SearchStrategy[Any] = st.sampled_from(["Hello", "a\nb", "12 °C"]).map(
    lambda text: Text(text=text)
)
FILES: st.SearchStrategy[Any] = st.sampled_from(
    [
        Image(media_type="image/png", data="iVBORw0KGgo="),
        Document(media_type="application/pdf", data="JVBERi0=", name="paper"),
    ]
)
THOUGHTS: st.SearchStrategy[Any] = st.sampled_from(
    [
        Thinking(text="hm", signature="c2ln"),
        Thinking(text="hm"),
        Thinking(text="hm", signature=""),
        RedactedThinking(data="AAEC"),
    ]
)


@st.composite
def loops(draw: st.DrawFn) -> list[tuple[Role, tuple[AnyPart, ...]]]:
    """A message that calls, and the results of its calls; some of them say nothing."""
    ids = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
    calls = [ToolCall(id=each, name="look", arguments='{"a":1}') for each in ids]
    before = draw(st.lists(THOUGHTS, max_size=2)) + draw(st.lists(TEXTS, max_size=1))
    answers = [
        ToolResult(
            call_id=each,
            content=tuple(draw(st.lists(TEXTS | FILES, max_size=2))),
            is_error=draw(st.booleans()),
        )
        for each in draw(st.permutations(ids))
    ]
    return [("assistant", (*before, *calls)), ("user", tuple(answers))]


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[Role, tuple[AnyPart, ...]]]:
    """Turns that make sense; the same ids come back in later ones."""
    said: list[tuple[Role, tuple[AnyPart, ...]]] = []
    for _ in range(draw(st.integers(0, 3))):
        said.append(("user", tuple(draw(st.lists(TEXTS | FILES, min_size=1, max_size=3)))))
        for _ in range(draw(st.integers(0, 2))):
            said += draw(loops())
        thoughts = draw(st.lists(THOUGHTS, max_size=1))
        said.append(("assistant", (*thoughts, draw(TEXTS))))
    said.append(("user", tuple(draw(st.lists(TEXTS | FILES, min_size=1, max_size=2)))))
    return said + (draw(loops()) if draw(st.booleans()) else [])


def client_of(source: Dialect) -> Dialect:
    """No client sends requests in Converse's format: only its messages are stored."""
    return "openai" if source == "bedrock" else source


def spoken_in(
    dialect: Dialect, said: list[tuple[Role, tuple[AnyPart, ...]]]
) -> tuple[Message, ...]:
    """The conversation as a client of that protocol would write it down."""
    return tuple(message for role, parts in said for message in written(dialect, role, parts))


def written(dialect: Dialect, role: Role, parts: tuple[AnyPart, ...]) -> list[Message]:
    if dialect == "openai":
        results = [encode_parts("tool", [p]) for p in parts if isinstance(p, ToolResult)]
        shown = [p for p in parts if not isinstance(p, ToolResult | RedactedThinking)]
        return results or [encode_parts(role, shown)]
    encode: Any = (lambda part: [encode_block(part)]) if dialect == "anthropic" else encode_blocks
    content = [block for part in parts for block in encode(part)]
    raw = msgspec.json.encode({"role": role, "content": content})
    return [Message(role=role, raw=raw, dialect=dialect)]


@pytest.mark.parametrize("source", DIALECTS)
@pytest.mark.parametrize(("target", "model", "profile"), MODELS)
@RARELY
@given(said=conversations())
def test_a_conversation_that_makes_sense_is_one_that_the_target_takes(
    source, target, model, profile, said
):
    body = sent(
        Prompt(model=model, messages=spoken_in(source, said), dialect=client_of(source)),
        target,
        profile,
    )

    assert find_problems(read(body, target), rules(target, model, profile)) == ()


@pytest.mark.parametrize("source", DIALECTS)
@pytest.mark.parametrize(("target", "model", "profile"), MODELS)
@RARELY
@given(said=conversations())
def test_the_same_conversation_twice_is_the_same_bytes(source, target, model, profile, said):
    prompt = Prompt(model=model, messages=spoken_in(source, said), dialect=client_of(source))

    assert provider(target, profile)._build_request(prompt) == provider(
        target, profile
    )._build_request(prompt)


@pytest.mark.parametrize(("target", "model", "profile"), MODELS)
@settings(RARELY, max_examples=choose_size(60, 2000))
@given(history=st.lists(messages(), max_size=6))
def test_a_broken_history_is_mended_or_one_clear_error(target, model, profile, history):
    prompt = Prompt(model=model, messages=tuple(history))
    is_taken_or_refused(prompt, target, model, profile)


def is_taken_or_refused(prompt: Prompt, target: Any, model: str, profile: str | None) -> None:
    refused: UnsendableError | None = None
    try:
        body = json.loads(provider(target, profile)._build_request(prompt).body)
    except UnsendableError as error:
        refused = error
    if refused is None:
        assert find_problems(read(body, target), rules(target, model, profile)) == ()
        return
    assert str(refused).startswith("Provider 'test' cannot be")
    assert "\n" not in str(refused)
    assert refused.status is None


@st.composite
def spoiled(draw: st.DrawFn) -> list[tuple[Role, tuple[AnyPart, ...]]]:
    """A conversation with messages lost, swapped, or blank."""
    said = draw(conversations())
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(said) - 1))
        match draw(st.sampled_from(["lose", "swap", "blank", "cut"])):
            case "lose" if len(said) > 1:
                del said[place]
            case "swap":
                other = draw(st.integers(0, len(said) - 1))
                said[place], said[other] = said[other], said[place]
            case "blank":
                said[place] = (said[place][0], (Text(text=" "),))
            case _:
                said[place] = (said[place][0], said[place][1][1:])
    return said


@pytest.mark.parametrize("source", DIALECTS)
@pytest.mark.parametrize(("target", "model", "profile"), MODELS)
@RARELY
@given(said=spoiled())
def test_a_conversation_with_holes_is_mended_or_one_clear_error(
    source, target, model, profile, said
):
    prompt = Prompt(model=model, messages=spoken_in(source, said), dialect=client_of(source))

    is_taken_or_refused(prompt, target, model, profile)


ORDERLY = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "tool", "system"]),
        st.lists(
            st.sampled_from(
                [
                    Text(text="a"),
                    Text(text=" "),
                    Text(text="a "),
                    Image(url="https://example.com/a.png"),
                    ToolCall(id="a", name="f", arguments="{}"),
                    ToolCall(id="b", name="f", arguments="{}"),
                    ToolResult(call_id="a"),
                    ToolResult(call_id="b", content=(Text(text="ok"),)),
                    ToolResult(call_id="b", content=(Text(text=""),)),
                    Thinking(text="hm", signature="s"),
                    Thinking(text="hm"),
                ]
            ),
            max_size=2,
        ),
    ),
    max_size=6,
)


def ordered(history: list[OutgoingMessage], profile: Profile) -> tuple[OutgoingMessage, ...] | None:
    return accept_ordered_history(
        history,
        merge_results=not profile.has_tool_role,
        make=lambda role, parts: OutgoingMessage(role=role, parts=parts),
        allow_prefill=profile.ending != "not_assistant",
    )


@settings(max_examples=1000)
@given(ORDERLY, st.sampled_from(list(PROFILES.values())))
def test_a_history_that_is_not_looked_at_is_one_that_would_have_passed(said, profile):
    history = [OutgoingMessage(role=role, parts=tuple(parts)) for role, parts in said]
    sent = ordered(history, profile)
    if sent is None:
        return

    assert find_problems(sent, profile) == ()
    assert sorted(id(p) for m in sent for p in m.parts) == sorted(
        id(p) for m in history for p in m.parts
    )
    sides = ["assistant" if message.role == "assistant" else "user" for message in sent]
    if not profile.has_tool_role:
        assert all(one != other for one, other in itertools.pairwise(sides))


CALLS = (
    OutgoingMessage(role="user", parts=(Text(text="a"),)),
    OutgoingMessage(
        role="assistant",
        parts=(
            Text(text="b"),
            ToolCall(id="a", name="f", arguments="{}"),
            ToolCall(id="b", name="f", arguments="{}"),
        ),
    ),
)
RESULTS = tuple(
    OutgoingMessage(role="tool", parts=(ToolResult(call_id=call),)) for call in ("b", "a")
)


def test_talk_and_tools_in_order_are_not_looked_at():
    history = [*CALLS, *RESULTS]

    assert ordered(history, PROFILES["openai"]) == tuple(history)
    assert ordered(history[:3], PROFILES["openai"]) is None
    assert ordered([], PROFILES["openai"]) is None


def test_results_of_one_turn_are_one_message_in_the_order_of_their_calls():
    joined = ordered([*CALLS, *RESULTS], PROFILES["anthropic"])

    assert joined is not None
    assert joined[:2] == CALLS
    assert joined[2].role == "user"
    assert joined[2].parts == (ToolResult(call_id="a"), ToolResult(call_id="b"))


@pytest.mark.parametrize(
    ("profile", "text", "taken"),
    [
        ("anthropic-prefill", "So", True),
        ("anthropic-prefill", "So ", False),
        ("anthropic", "So", False),
        ("openai", "So", True),
    ],
)
def test_the_beginning_of_an_answer_is_in_order_where_a_model_goes_on_from_there(
    profile, text, taken
):
    history = [CALLS[0], OutgoingMessage(role="assistant", parts=(Text(text=text),))]

    assert (ordered(history, PROFILES[profile]) is not None) is taken


@pytest.mark.parametrize("target", ["anthropic", "bedrock", "openai"])
def test_no_messages_are_an_error_before_anything_is_sent(target):
    model = {"bedrock": "amazon.nova-pro-v1:0"}.get(target, "claude-sonnet-4-5")
    with pytest.raises(UnsendableError, match="there are no messages; send at least one") as error:
        sent(Prompt(model=model, messages=()), target)

    assert error.value.status is None
    assert error.value.path == "messages[0]"


def test_an_error_says_what_is_wrong_where_and_what_to_do():
    prompt = Prompt(model="claude-opus-4-6", messages=(HELLO, plain_message("assistant", "It is")))

    with pytest.raises(UnsendableError) as error:
        sent(prompt, "anthropic")

    assert str(error.value) == (
        "Provider 'test' cannot be sent this: messages[1]: the last message is the assistant's; "
        "end with a message of the user's, or ask a model that goes on from there."
    )
    assert error.value.path == "messages[1]"


def test_an_earlier_claude_goes_on_from_the_assistant_s_words():
    prompt = Prompt(model="claude-sonnet-4-5", messages=(HELLO, plain_message("assistant", "It ")))

    assert sent(prompt, "anthropic")["messages"][1] == {"role": "assistant", "content": "It"}


def test_a_strict_server_is_sent_roles_in_turn_and_others_are_not():
    prompt = Prompt(model="m", messages=(HELLO, HELLO))

    assert len(sent(prompt, "openai")["messages"]) == 2
    assert len(sent(prompt, "openai", "strict")["messages"]) == 1


def test_the_system_prompt_of_a_strict_server_is_one_message():
    system = plain_message("system", "Be brief.")
    prompt = Prompt(model="m", system=system, messages=(plain_message("system", "Rhyme."), HELLO))
    roles = [message["role"] for message in sent(prompt, "openai", "strict")["messages"]]

    assert roles == ["system", "user"]


def test_a_profile_that_nobody_knows_is_named_with_those_there_are():
    with pytest.raises(SettingsError, match="no profile 'lenient'; choose one of anthropic, "):
        repair_for("openai", "m", provider="x", profile="lenient")


def test_calls_in_the_form_before_tools_go_as_they_came():
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}}
    result = {"role": "function", "name": "f", "content": "1"}
    history = (
        HELLO,
        Message(role="assistant", raw=json.dumps(call).encode()),
        Message(role="tool", raw=json.dumps(result).encode()),
    )

    assert sent(Prompt(model="m", messages=history), "openai")["messages"][1:] == [call, result]


def test_every_problem_has_a_sentence_and_advice_is_about_problems_there_are():
    assert set(ADVICE) <= set(PROBLEM_MESSAGES)


def test_the_same_call_id_twice_in_one_message_can_be_sent():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    raw = json.dumps({"role": "assistant", "content": None, "tool_calls": [call, call]})
    result = json.dumps({"role": "tool", "tool_call_id": "a", "content": "1"}).encode()
    history = (
        HELLO,
        Message(role="assistant", raw=raw.encode()),
        Message(role="tool", raw=result),
        Message(role="tool", raw=result),
    )
    body = sent(Prompt(model="m", messages=history), "openai")
    ids = [call["id"] for call in body["messages"][1]["tool_calls"]]

    assert len(set(ids)) == 2
    assert [message["tool_call_id"] for message in body["messages"][2:]] == ids


def test_a_mending_passes_on_what_needs_nothing():
    history = (OutgoingMessage(role="user", parts=(Text(text="a"),), raw=b"{}"),)

    assert HistoryRepair(PROFILES["strict"], provider="x")(history).messages[0] is history[0]
