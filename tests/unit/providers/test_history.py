"""Repaired histories: a request body that the target accepts, or one clear error."""

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
from cllm.history.rules import (
    PROBLEM_MESSAGES,
    PROFILES,
    HistoryProfile,
    find_problems,
    profile_for,
)
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
    ("bedrock", "meta.llama3-2-90b-instruct-v1:0", None),
    ("bedrock", "amazon.nova-pro-v1:0", None),
    ("openai", "gpt-4o", None),
    ("openai", "some-model", "strict"),
]
DIALECTS: tuple[Dialect, ...] = ("openai", "anthropic", "bedrock")
HELLO = plain_message("user", "Hello")
FEW_EXAMPLES = settings(
    max_examples=choose_size(8, 300), deadline=None, suppress_health_check=list(HealthCheck)
)


class BodySent(Exception):  # noqa: N818 - carries the body to the test, no error
    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body


class RecordingTransport:
    async def post(self, _url: str, *, body: bytes, **_: Any) -> NoReturn:
        raise BodySent(body)

    async def close(self) -> None:
        pass


def provider(target: str, profile: str | None = None) -> HttpProvider:
    transport: Any = RecordingTransport()
    if target == "bedrock":
        return BedrockProvider(name="test", account=AwsAccount(bearer="k"), http=transport)
    if target == "anthropic":
        return AnthropicProvider(name="test", base_url="https://x", api_key="k", http=transport)
    return OpenAIProvider(
        name="test", base_url="https://x", api_key="k", http=transport, profile=profile
    )


def send(prompt: Prompt, target: str, profile: str | None = None) -> dict[str, Any]:
    async def ask() -> None:
        async for _ in provider(target, profile).ask(prompt):
            pass

    with pytest.raises(BodySent) as sent:
        asyncio.run(ask())
    body: dict[str, Any] = json.loads(sent.value.body)
    return body


def decode(body: dict[str, Any], target: Any) -> list[OutgoingMessage]:
    """The messages of a body, decoded by the codec of its protocol."""
    roles: dict[str, Role] = {"developer": "system", "function": "tool"}
    messages = []
    for fields in body["messages"]:
        role: Role = roles.get(fields["role"], fields["role"])
        raw = msgspec.json.encode(fields)
        message = Message(role=role, raw=raw, dialect=target)
        messages.append(OutgoingMessage(role=role, parts=parts_of(message)))
    return messages


def rules(target: Any, model: str, profile: str | None) -> HistoryProfile:
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
    """A message with tool calls, and their results; some are empty."""
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
    """Valid turns; later ones reuse the same ids."""
    history: list[tuple[Role, tuple[AnyPart, ...]]] = []
    for _ in range(draw(st.integers(0, 3))):
        history.append(("user", tuple(draw(st.lists(TEXTS | FILES, min_size=1, max_size=3)))))
        for _ in range(draw(st.integers(0, 2))):
            history += draw(loops())
        thoughts = draw(st.lists(THOUGHTS, max_size=1))
        history.append(("assistant", (*thoughts, draw(TEXTS))))
    history.append(("user", tuple(draw(st.lists(TEXTS | FILES, min_size=1, max_size=2)))))
    return history + (draw(loops()) if draw(st.booleans()) else [])


def client_dialect(source: Dialect) -> Dialect:
    """No client sends requests in Converse's format: only its messages are stored."""
    return "openai" if source == "bedrock" else source


def encode_history(
    dialect: Dialect, history: list[tuple[Role, tuple[AnyPart, ...]]]
) -> tuple[Message, ...]:
    """The conversation as a client of that protocol sends it."""
    return tuple(
        message for role, parts in history for message in encode_message(dialect, role, parts)
    )


def encode_message(dialect: Dialect, role: Role, parts: tuple[AnyPart, ...]) -> list[Message]:
    if dialect == "openai":
        results = [encode_parts("tool", [p]) for p in parts if isinstance(p, ToolResult)]
        others = [p for p in parts if not isinstance(p, ToolResult | RedactedThinking)]
        return results or [encode_parts(role, others)]
    encode: Any = (lambda part: [encode_block(part)]) if dialect == "anthropic" else encode_blocks
    content = [block for part in parts for block in encode(part)]
    raw = msgspec.json.encode({"role": role, "content": content})
    return [Message(role=role, raw=raw, dialect=dialect)]


@pytest.mark.parametrize("source", DIALECTS)
@pytest.mark.parametrize(("target", "model", "profile"), MODELS)
@FEW_EXAMPLES
@given(history=conversations())
def test_a_valid_conversation_becomes_a_body_that_the_target_accepts(
    source, target, model, profile, history
):
    body = send(
        Prompt(
            model=model, messages=encode_history(source, history), dialect=client_dialect(source)
        ),
        target,
        profile,
    )

    assert find_problems(decode(body, target), rules(target, model, profile)) == ()


@pytest.mark.parametrize("source", DIALECTS)
@pytest.mark.parametrize(("target", "model", "profile"), MODELS)
@FEW_EXAMPLES
@given(history=conversations())
def test_equal_prompts_become_equal_bytes(source, target, model, profile, history):
    prompt = Prompt(
        model=model, messages=encode_history(source, history), dialect=client_dialect(source)
    )

    assert provider(target, profile)._build_request(prompt) == provider(
        target, profile
    )._build_request(prompt)


@pytest.mark.parametrize(("target", "model", "profile"), MODELS)
@settings(FEW_EXAMPLES, max_examples=choose_size(30, 2000))
@given(history=st.lists(messages(), max_size=6))
def test_a_broken_history_is_repaired_or_one_clear_error(target, model, profile, history):
    prompt = Prompt(model=model, messages=tuple(history))
    check_accepted_or_refused(prompt, target, model, profile)


def check_accepted_or_refused(prompt: Prompt, target: Any, model: str, profile: str | None) -> None:
    refused: UnsendableError | None = None
    try:
        body = json.loads(provider(target, profile)._build_request(prompt).body)
    except UnsendableError as error:
        refused = error
    if refused is None:
        assert find_problems(decode(body, target), rules(target, model, profile)) == ()
        return
    assert str(refused).startswith("Cannot send this ")
    assert "\n" not in str(refused)
    assert refused.status is None


@st.composite
def damaged_conversations(draw: st.DrawFn) -> list[tuple[Role, tuple[AnyPart, ...]]]:
    """A conversation with missing, swapped or blank messages."""
    history = draw(conversations())
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, len(history) - 1))
        match draw(st.sampled_from(["lose", "swap", "blank", "cut"])):
            case "lose" if len(history) > 1:
                del history[index]
            case "swap":
                other = draw(st.integers(0, len(history) - 1))
                history[index], history[other] = history[other], history[index]
            case "blank":
                history[index] = (history[index][0], (Text(text=" "),))
            case _:
                history[index] = (history[index][0], history[index][1][1:])
    return history


@pytest.mark.parametrize("source", DIALECTS)
@pytest.mark.parametrize(("target", "model", "profile"), MODELS)
@FEW_EXAMPLES
@given(history=damaged_conversations())
def test_a_damaged_conversation_is_repaired_or_one_clear_error(
    source, target, model, profile, history
):
    prompt = Prompt(
        model=model, messages=encode_history(source, history), dialect=client_dialect(source)
    )

    check_accepted_or_refused(prompt, target, model, profile)


HISTORIES = st.lists(
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


def accept(
    history: list[OutgoingMessage], profile: HistoryProfile
) -> tuple[OutgoingMessage, ...] | None:
    return accept_ordered_history(
        history,
        merge_results=not profile.has_tool_role,
        make=lambda role, parts: OutgoingMessage(role=role, parts=parts),
        allow_prefill=profile.last_message != "not_assistant",
    )


@settings(max_examples=choose_size(300, 3000))
@given(HISTORIES, st.sampled_from(list(PROFILES.values())))
def test_a_history_that_is_accepted_without_repair_has_no_problems(history, profile):
    history = [OutgoingMessage(role=role, parts=tuple(parts)) for role, parts in history]
    accepted = accept(history, profile)
    if accepted is None:
        return

    assert find_problems(accepted, profile) == ()
    assert sorted(id(p) for m in accepted for p in m.parts) == sorted(
        id(p) for m in history for p in m.parts
    )
    sides = ["assistant" if message.role == "assistant" else "user" for message in accepted]
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


def test_ordered_texts_and_tools_are_accepted_without_repair():
    history = [*CALLS, *RESULTS]

    assert accept(history, PROFILES["openai"]) == tuple(history)
    assert accept(history[:3], PROFILES["openai"]) is None
    assert accept([], PROFILES["openai"]) is None


def test_results_of_one_turn_become_one_message_in_the_order_of_their_calls():
    merged = accept([*CALLS, *RESULTS], PROFILES["anthropic"])

    assert merged is not None
    assert merged[:2] == CALLS
    assert merged[2].role == "user"
    assert merged[2].parts == (ToolResult(call_id="a"), ToolResult(call_id="b"))


@pytest.mark.parametrize(
    ("profile", "text", "is_accepted"),
    [
        ("anthropic-prefill", "So", True),
        ("anthropic-prefill", "So ", False),
        ("anthropic", "So", False),
        ("openai", "So", True),
    ],
)
def test_a_prefilled_answer_is_accepted_for_models_that_continue_it(profile, text, is_accepted):
    history = [CALLS[0], OutgoingMessage(role="assistant", parts=(Text(text=text),))]

    assert (accept(history, PROFILES[profile]) is not None) is is_accepted


@pytest.mark.parametrize("target", ["anthropic", "bedrock", "openai"])
def test_a_prompt_without_messages_is_refused_before_sending(target):
    model = {"bedrock": "amazon.nova-pro-v1:0"}.get(target, "claude-sonnet-4-5")
    with pytest.raises(UnsendableError, match="there are no messages; send at least one") as error:
        send(Prompt(model=model, messages=()), target)

    assert error.value.status is None
    assert error.value.path == "messages[0]"


def test_an_error_names_the_problem_its_path_and_the_fix():
    prompt = Prompt(model="claude-opus-4-6", messages=(HELLO, plain_message("assistant", "It is")))

    with pytest.raises(UnsendableError) as error:
        send(prompt, "anthropic")

    assert str(error.value) == (
        "Cannot send this history to provider 'test': messages[1]: the last message is the "
        "assistant's; end with a user message, or use a model that continues a prefilled reply."
    )
    assert error.value.path == "messages[1]"


def test_an_earlier_claude_continues_a_prefilled_answer():
    prompt = Prompt(model="claude-sonnet-4-5", messages=(HELLO, plain_message("assistant", "It ")))

    assert send(prompt, "anthropic")["messages"][1] == {"role": "assistant", "content": "It"}


def test_only_a_strict_server_gets_alternating_roles():
    prompt = Prompt(model="m", messages=(HELLO, HELLO))

    assert len(send(prompt, "openai")["messages"]) == 2
    assert len(send(prompt, "openai", "strict")["messages"]) == 1


def test_a_strict_server_gets_one_system_message():
    system = plain_message("system", "Be brief.")
    prompt = Prompt(model="m", system=system, messages=(plain_message("system", "Rhyme."), HELLO))
    roles = [message["role"] for message in send(prompt, "openai", "strict")["messages"]]

    assert roles == ["system", "user"]


def test_an_unknown_profile_is_an_error_that_lists_the_profiles():
    with pytest.raises(SettingsError, match="'lenient' does not exist; use one of anthropic, "):
        repair_for("openai", "m", provider="x", profile="lenient")


def test_function_calls_are_sent_unchanged():
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}}
    result = {"role": "function", "name": "f", "content": "1"}
    history = (
        HELLO,
        Message(role="assistant", raw=json.dumps(call).encode()),
        Message(role="tool", raw=json.dumps(result).encode()),
    )

    assert send(Prompt(model="m", messages=history), "openai")["messages"][1:] == [call, result]


def test_every_advice_belongs_to_a_problem():
    assert set(ADVICE) <= set(PROBLEM_MESSAGES)


def test_duplicate_call_ids_in_one_message_become_unique():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    raw = json.dumps({"role": "assistant", "content": None, "tool_calls": [call, call]})
    result = json.dumps({"role": "tool", "tool_call_id": "a", "content": "1"}).encode()
    history = (
        HELLO,
        Message(role="assistant", raw=raw.encode()),
        Message(role="tool", raw=result),
        Message(role="tool", raw=result),
    )
    body = send(Prompt(model="m", messages=history), "openai")
    ids = [call["id"] for call in body["messages"][1]["tool_calls"]]

    assert len(set(ids)) == 2
    assert [message["tool_call_id"] for message in body["messages"][2:]] == ids


def test_a_valid_message_is_the_same_object_after_repair():
    history = (OutgoingMessage(role="user", parts=(Text(text="a"),), raw=b"{}"),)

    assert HistoryRepair(PROFILES["strict"], provider="x")(history).messages[0] is history[0]
