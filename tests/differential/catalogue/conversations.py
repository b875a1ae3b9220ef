"""Cases of conversations: create, continue, read, change, branch, export, delete.

Also cases of turns: replies of every kind, regeneration, conflicts, idempotency keys, disconnects,
resumed streams and windows.
"""

import itertools
from collections.abc import Iterator
from typing import Any

from tests.differential.catalogue.builders import (
    MODES,
    PROTOCOLS,
    PROVIDERS,
    STATES,
    encode_body,
    make_body,
    make_call,
    make_case,
    make_message,
    make_steps,
)
from tests.differential.model import (
    Action,
    Answer,
    Call,
    Case,
    Join,
    Json,
    NamedGate,
    Open,
    Refusal,
    Settle,
)
from tests.fake_provider import Reply, ToolCall

UNKNOWN = "0d9e4a54-6f5b-4a5e-9a0e-3f1d7a6f2b11"
CONVERSATIONS = "/v1/conversations"
ONE = f"{CONVERSATIONS}/{{conversation}}"
MAIN = ("openai", "anthropic", "bedrock")
TOOLS: dict[str, list[Json]] = {
    "openai": [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "The weather in a town.",
                "parameters": {
                    "type": "object",
                    "properties": {"town": {"type": "string"}},
                    "required": ["town"],
                },
            },
        }
    ],
    "anthropic": [
        {
            "name": "weather",
            "description": "The weather in a town.",
            "input_schema": {
                "type": "object",
                "properties": {"town": {"type": "string"}},
                "required": ["town"],
            },
        }
    ],
}
CALL = ToolCall(id="call_w1", name="weather", arguments='{"town": "Bern"}')
SECOND = ToolCall(id="call_w2", name="weather", arguments='{"town": "Genève"}')


def get(path: str, **options: Any) -> Call:
    return Call(method="GET", path=path, **options)


def send(method: str, path: str, body: Any, **options: Any) -> Call:
    return Call(method=method, path=path, body=encode_body(body), **options)


def delete(path: str) -> Call:
    return Call(method="DELETE", path=path)


REPLIES: dict[str, tuple[Answer, ...]] = {
    "text": (Reply(pieces=("One ", "two ", "three.")),),
    "unicode": (Reply(pieces=("Zoë ", "🐈‍⬛ ", "\u202eabc\u0007 ", "日本語")),),
    "long": (Reply(pieces=tuple(f"word{n} " for n in range(60)), usage=(900, 600)),),
    "empty": (Reply(pieces=()),),
    "blank": (Reply(pieces=(" ", "\n")),),
    "cut": (Reply(pieces=("One ", "two"), finish="length"),),
    "filtered": (Reply(pieces=("One",), finish="content_filter"),),
    "odd-finish": (Reply(pieces=("One",), finish="novel_reason"),),
    "no-finish": (Reply(pieces=("One",), finish=None),),
    "no-usage": (Reply(pieces=("One",), usage=None),),
    "cached": (Reply(pieces=("One",), usage=(40, 5), cached=(1000, 200)),),
    "reasoning": (Reply(pieces=("Answer.",), reasoning=("Let me ", "think.")),),
    "tool": (Reply(pieces=("Look: ",), tool_calls=(CALL,), finish="tool_calls"),),
    "tools": (Reply(tool_calls=(CALL, SECOND), finish="tool_calls"),),
    "reasoning-tool": (Reply(reasoning=("Which town?",), tool_calls=(CALL,), finish="tool_calls"),),
    "packets": (Reply(pieces=("Grüße ", "aus ", "Köln"), packet=7),),
    "carriage-returns": (Reply(pieces=("One ", "two"), line_end="\r\n"),),
    "comments": (Reply(pieces=("One ", "two"), comments=True),),
    "stopped": (Reply(pieces=("One ", "two ", "three"), stop_after=2),),
    "stopped-softly": (Reply(pieces=("One ", "two ", "three"), stop_after=2, abrupt=False),),
    "stopped-first": (Reply(pieces=("One ", "two"), stop_after=0),),
    "garbage": (Reply(pieces=("One ", "two"), garbage_before=1),),
    "no-end": (Reply(pieces=("One ", "two"), done=False),),
    "error-inside": (
        Reply(pieces=("One ", "two"), stop_after=1, error=("overloaded_error", "Overloaded.")),
    ),
}
REFUSALS: dict[str, Refusal] = {
    "400": Refusal(status=400, message="max_tokens is too large."),
    "400-code": Refusal(status=400, message="Too long.", code="context_length_exceeded"),
    "400-long": Refusal(status=400, message="prompt is too long: 250000 tokens > 200000 maximum"),
    "401": Refusal(status=401, message="Incorrect API key provided: sk-123."),
    "403": Refusal(status=403, message="Not for you."),
    "404": Refusal(status=404, message="The model does not exist.", code="model_not_found"),
    "408": Refusal(status=408),
    "409": Refusal(status=409),
    "413": Refusal(status=413, message="Too large."),
    "422": Refusal(status=422, message="Unprocessable."),
    "429": Refusal(status=429, message="Slow down.", headers={"Retry-After": "7"}),
    "429-quota": Refusal(status=429, message="Quota exceeded.", code="insufficient_quota"),
    "500": Refusal(status=500, message="Oops."),
    "502": Refusal(status=502),
    "503": Refusal(status=503, headers={"Retry-After": "3"}),
    "529": Refusal(status=529, code="overloaded_error"),
}


def reply_cases() -> Iterator[Case]:
    """Every kind of reply, in both protocols, all providers, alternating modes and states."""
    kinds = itertools.product(REPLIES.items(), PROTOCOLS, PROVIDERS)
    for number, ((name, answers), protocol, provider) in enumerate(kinds):
        mode = MODES[(number + number // len(PROVIDERS)) % 2]
        state = STATES[(number + number // len(PROVIDERS)) % 3]
        body = make_body(protocol, tools=TOOLS[protocol]) if "tool" in name else {}
        body = body or make_body(protocol)
        steps = make_steps(state, protocol, provider, body, mode=mode, answers=answers)
        yield make_case(f"reply-{name}", protocol, provider, mode, state, steps)


def refusal_cases() -> Iterator[Case]:
    """Every kind of provider error."""
    kinds = itertools.product(REFUSALS.items(), PROTOCOLS, PROVIDERS[:4])
    for number, ((name, refusal), protocol, provider) in enumerate(kinds):
        mode, state = MODES[number // 4 % 2], STATES[number % 3]
        body = make_body(protocol)
        steps = make_steps(state, protocol, provider, body, mode=mode, answers=[refusal])
        yield make_case(f"refusal-{name}", protocol, provider, mode, state, steps)
    for protocol, mode in itertools.product(PROTOCOLS, MODES):
        call = make_call(protocol, "openai", make_body(protocol), mode=mode, conversation="")
        sent = {**call.headers, "X-Provider": "nobody"}
        unreachable = Call(path=call.path, headers=sent, body=call.body, save=call.save)
        yield make_case("refusal-unreachable", protocol, "openai", mode, "new", [unreachable])


def lifetime_cases() -> Iterator[Case]:
    """A conversation from its first turn to its deletion, with every route that reads it."""
    for protocol, provider, mode in itertools.product(PROTOCOLS, MAIN, MODES):
        yield make_case(
            "lifetime",
            protocol,
            provider,
            mode,
            "continue",
            _lifetime(protocol, provider, mode),
            "deletes",
        )


def _lifetime(protocol: str, provider: str, mode: str) -> Iterator[Action]:
    def turn(text: str, conversation: str = "{conversation}", **options: Any) -> Call:
        body = make_body(protocol, make_message("user", text))
        return make_call(protocol, provider, body, mode=mode, conversation=conversation, **options)

    system = {"system": "You are a cat."} if protocol == "anthropic" else {}
    opening = [] if system else [make_message("system", "You are a cat.")]
    first = make_body(
        protocol, *opening, make_message("user", "Tell me about cats & dogs"), **system
    )
    yield make_call(protocol, provider, first, mode=mode, conversation="")
    yield turn("And about whales?")
    yield get(ONE)
    yield get(f"{ONE}/messages/1")
    yield get(f"{ONE}/messages/9")
    yield get(f"{ONE}/turns/{{turn}}")
    yield get(f"{ONE}/turns/{{turn}}/prompt")
    yield get(f"{ONE}/turns/{{turn}}/events")
    yield get(f"{ONE}?after=2&limit=1")
    yield send("PATCH", ONE, {"title": "  Animals  ", "metadata": {"tag": ["a", 1]}})
    regenerate = make_body(protocol) | {"messages": []}
    yield make_call(
        protocol,
        provider,
        regenerate,
        mode=mode,
        conversation="{conversation}",
        answers=[Reply(pieces=("Another ", "answer."))],
    )
    yield get(f"{ONE}?variants=true")
    yield send("POST", f"{ONE}/branch", {"branch_at_sequence": 2}, save={"branch": "json:id"})
    yield turn("On the branch.", "{branch}")
    yield get(f"{CONVERSATIONS}/{{branch}}")
    yield get(f"{CONVERSATIONS}?limit=2", save={"cursor": "json:next_cursor"})
    yield get(f"{CONVERSATIONS}?limit=2&cursor={{cursor}}")
    yield get(f"{CONVERSATIONS}/search?q=whales")
    yield get(f"{CONVERSATIONS}/search?q=Cats+dogs&limit=1&offset=0")
    yield get(f"{CONVERSATIONS}/search?q=nothing-like-it")
    for form in ("json", "markdown", "html"):
        yield get(f"{ONE}/export?format={form}", save={form: "body"})
    yield Call(path=f"{CONVERSATIONS}/import", body=b"{json}", save={"copy": "json:id"})
    yield get(f"{CONVERSATIONS}/{{copy}}?variants=true")
    yield turn("After the import.", "{copy}")
    yield delete(f"{ONE}/messages/3")
    yield get(ONE)
    yield turn("Again.")
    yield delete(ONE)
    yield get(ONE)
    yield turn("To the archive.")
    yield get(f"{CONVERSATIONS}?archive_filter=archived")
    yield get(f"{CONVERSATIONS}/search?q=cats&archive_filter=all")
    yield send("PATCH", ONE, {"archived": False, "title": None})
    yield turn("Back again.")
    yield delete(f"{ONE}?permanent=true")
    yield get(ONE)
    yield get(f"{CONVERSATIONS}/{{branch}}")
    yield get(f"{CONVERSATIONS}/search?q=whales")
    yield get("/v1/usage?by=model")
    yield delete(f"{CONVERSATIONS}/{{branch}}?permanent=true")
    yield delete(f"{CONVERSATIONS}/{{copy}}?permanent=true")


def policy_cases() -> Iterator[Case]:
    """Conversations that are created before the first turn, with each system prompt policy."""
    for protocol, policy in itertools.product(PROTOCOLS, ("dynamic", "captured", "pinned")):
        created: Json = {"title": "Made", "metadata": {"a": 1}, "system_policy": policy}
        steps: list[Action] = [
            send("POST", CONVERSATIONS, created, save={"conversation": "json:id"}),
            get(ONE),
        ]
        for text in ("One.", "Two."):
            system = {"system": f"Prompt {text}"} if protocol == "anthropic" else {}
            opening = [] if system else [make_message("system", f"Prompt {text}")]
            body = make_body(protocol, *opening, make_message("user", text), **system)
            steps.append(make_call(protocol, "openai", body, conversation="{conversation}"))
        steps += [get(ONE), get(f"{ONE}/export"), get(f"{CONVERSATIONS}/search?q=prompt")]
        yield make_case(f"policy-{policy}", protocol, "openai", "whole", "continue", steps)


def invalid_request_cases() -> Iterator[Case]:
    """Invalid requests about conversations."""
    wrong: list[Action] = [
        get(f"{CONVERSATIONS}/{UNKNOWN}"),
        get(f"{CONVERSATIONS}/cats"),
        get(f"{CONVERSATIONS}/files:none"),
        get(f"{CONVERSATIONS}?limit=0"),
        get(f"{CONVERSATIONS}?limit=101"),
        get(f"{CONVERSATIONS}?limit=x"),
        get(f"{CONVERSATIONS}?limit=1&limit=2"),
        get(f"{CONVERSATIONS}?offset=-1"),
        get(f"{CONVERSATIONS}?cursor=nonsense"),
        get(f"{CONVERSATIONS}?archive_filter=some"),
        get(f"{CONVERSATIONS}?store=files"),
        get(f"{CONVERSATIONS}?store=nowhere"),
        get(f"{CONVERSATIONS}/search"),
        get(f"{CONVERSATIONS}/search?q="),
        get(f"{CONVERSATIONS}/search?q=%22*%27%3B--"),
        get(f"{CONVERSATIONS}/{UNKNOWN}/export"),
        get(f"{CONVERSATIONS}/{UNKNOWN}/turns/{UNKNOWN}"),
        get(f"{CONVERSATIONS}/{UNKNOWN}/turns/{UNKNOWN}/events"),
        send("POST", CONVERSATIONS, {"title": 5}),
        send("POST", CONVERSATIONS, {"metadata": []}),
        send("POST", CONVERSATIONS, {"system_policy": "none"}),
        send("POST", CONVERSATIONS, {"unknown": 1}),
        send("POST", CONVERSATIONS, []),
        Call(path=CONVERSATIONS, body=b""),
        Call(path=CONVERSATIONS, body=b"{"),
        send("PATCH", f"{CONVERSATIONS}/{UNKNOWN}", {"title": "x"}),
        send("POST", f"{CONVERSATIONS}/{UNKNOWN}/branch", {"branch_at_sequence": 1}),
        send("POST", f"{CONVERSATIONS}/import", {"messages": 5}),
        send("POST", f"{CONVERSATIONS}/import", {"id": "x", "model": "m"}),
        delete(f"{CONVERSATIONS}/{UNKNOWN}"),
        delete(f"{CONVERSATIONS}/{UNKNOWN}/messages/1"),
        Call(method="PUT", path=CONVERSATIONS, body=b"{}"),
    ]
    for number, step in enumerate(wrong):
        yield make_case(f"mistake-{number:02}", "conversations", "none", "whole", "none", [step])
    opening = make_call("openai", "openai", make_body("openai"), conversation="")
    further: list[Action] = [
        send("POST", f"{ONE}/branch", {"branch_at_sequence": 0}),
        send("POST", f"{ONE}/branch", {"branch_at_sequence": 99}),
        send("POST", f"{ONE}/branch", {}),
        send("PATCH", ONE, {"title": "x" * 300}),
        send("PATCH", ONE, {"title": "   "}),
        send("PATCH", ONE, {"metadata": {"k": "v" * 3000}}),
        send("PATCH", ONE, {"archived": "yes"}),
        send("PATCH", ONE, {}),
        delete(f"{ONE}/messages/0"),
        delete(f"{ONE}/messages/x"),
        get(f"{ONE}/export?format=pdf"),
        get(f"{ONE}/turns/{{turn}}/events?x=1", headers={"Last-Event-ID": "1"}),
        get(f"{ONE}/turns/{{turn}}/events", headers={"Last-Event-ID": "x"}),
        get(f"{ONE}?after=x"),
        make_call("openai", "openai", {"messages": []}, conversation=UNKNOWN),
        make_call("openai", "openai", {"messages": []}, conversation=""),
        make_call("openai", "openai", {"messages": []}),
        make_call("openai", "openai", make_body("openai"), conversation="cats"),
        make_call("openai", "openai", make_body("openai"), conversation="null"),
        make_call("openai", "openai", make_body("openai"), conversation="files:cats"),
        make_call("anthropic", "openai", make_body("anthropic"), conversation=UNKNOWN),
        make_call("anthropic", "openai", {"max_tokens": 5, "messages": []}, conversation=""),
    ]
    for number, step in enumerate(further):
        steps = [opening, step, get(ONE)]
        yield make_case(
            f"further-{number:02}", "conversations", "openai", "whole", "continue", steps
        )


def import_cases() -> Iterator[Case]:
    """Conversation files of several formats are imported and continued."""
    at = "2025-10-31T12:00:00.123456Z"
    plain = [make_message("user", "Hello"), make_message("assistant", "Hi.")]
    tool = [
        make_message("user", "Weather?"),
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": "{}"},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "Rain"},
        make_message("assistant", "It rains."),
    ]
    parts = [
        make_message(
            "user",
            [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            ],
        ),
        make_message("assistant", "A cat."),
    ]
    files: dict[str, Json] = {
        "plain": {"messages": plain},
        "system": {"messages": [make_message("system", "Be brief."), *plain]},
        "tools": {"messages": tool},
        "parts": {"messages": parts},
        "open-call": {"messages": tool[:2]},
        "empty": {"messages": []},
        "metadata": {"messages": plain, "metadata": {"total_tokens": 150, "mine": [1]}},
        "unknown-keys": {"messages": plain, "colour": "blue"},
    }
    for (name, fields), provider in itertools.product(files.items(), MAIN):
        file = {"id": "old", "model": "openai/gpt-test", "created_at": at, "updated_at": at}
        imported = send(
            "POST",
            f"{CONVERSATIONS}/import",
            file | fields,
            save={"conversation": "json:id"},
        )
        steps = [
            imported,
            get(f"{ONE}?variants=true"),
            make_call("openai", provider, make_body("openai"), conversation="{conversation}"),
            get(f"{ONE}/export"),
        ]
        yield make_case(f"import-{name}", "conversations", provider, "whole", "continue", steps)


def tool_cases() -> Iterator[Case]:
    """A tool loop in a conversation that starts in one protocol and ends in another."""
    for first, second, provider, mode in itertools.product(PROTOCOLS, PROTOCOLS, PROVIDERS, MODES):
        steps: list[Action] = [
            make_call(
                first,
                provider,
                make_body(first, make_message("user", "Weather?"), tools=TOOLS[first]),
                mode=mode,
                conversation="",
                answers=[
                    Reply(
                        pieces=("I look.",),
                        reasoning=("Both towns.",),
                        tool_calls=(CALL, SECOND),
                        finish="tool_calls",
                    )
                ],
            ),
            make_call(
                second,
                provider,
                make_body(second, *_results(second), tools=TOOLS[second]),
                mode=mode,
                conversation="{conversation}",
                answers=[Reply(pieces=("Rain ", "and sun."))],
            ),
            make_call(
                first,
                provider,
                make_body(first, make_message("user", "Thanks.")),
                mode=mode,
                conversation="{conversation}",
            ),
        ]
        yield make_case(f"tools-then-{second}", first, provider, mode, "continue", steps)


def _results(protocol: str) -> list[Json]:
    results = (("call_w2", "Sun"), ("call_w1", "Rain"))
    if protocol == "openai":
        return [{"role": "tool", "tool_call_id": i, "content": text} for i, text in results]
    blocks = [{"type": "tool_result", "tool_use_id": i, "content": text} for i, text in results]
    return [{"role": "user", "content": blocks}]


def provider_switch_cases() -> Iterator[Case]:
    """A conversation that uses another provider in each turn."""
    for protocol, mode, first in itertools.product(PROTOCOLS, MODES, PROVIDERS):
        start = PROVIDERS.index(first)
        order = [*PROVIDERS[start:], *PROVIDERS[:start]][:4]
        steps: list[Action] = []
        for number, provider in enumerate(order):
            thinking = Reply(pieces=(f"Answer {number}.",), reasoning=("Hm.",), signature="c2ln")
            steps.append(
                make_call(
                    protocol,
                    provider,
                    make_body(protocol, make_message("user", f"Question {number}")),
                    mode=mode,
                    conversation="{conversation}" if number else "",
                    answers=[thinking],
                )
            )
        yield make_case("across", protocol, first, mode, "continue", steps)


def retry_cases() -> Iterator[Case]:
    """Failed turns, regeneration, idempotency keys, and clients that retry."""
    for protocol, provider, mode in itertools.product(PROTOCOLS, MAIN, MODES):
        body = make_body(protocol, make_message("user", "Again?"))

        def turn(
            number: str = "{conversation}",
            answers: tuple[Answer, ...] = (),
            body: Json = body,
            headers: Json | None = None,
            *,
            protocol: str = protocol,
            provider: str = provider,
            mode: str = mode,
        ) -> Call:
            return make_call(
                protocol,
                provider,
                body,
                mode=mode,
                conversation=number,
                answers=answers,
                headers=headers,
            )

        nothing = make_body(protocol) | {"messages": []}
        failed = [
            turn(""),
            turn(answers=(Refusal(status=500),)),
            get(f"{ONE}?variants=true"),
            turn(body=nothing),
            turn(body=nothing, answers=(Reply(pieces=("Third.",)),)),
            get(f"{ONE}?variants=true"),
        ]
        yield make_case("failed-again", protocol, provider, mode, "continue", failed)
        key = {"Idempotency-Key": "key-1"}
        keyed = [
            turn("", headers={"Idempotency-Key": "key-new"}),
            turn("", headers={"Idempotency-Key": "key-new"}),
            turn(headers=key),
            turn(headers=key),
            turn(headers=key, body=make_body(protocol, make_message("user", "Other"))),
            make_call(protocol, provider, body, mode=mode, headers={"Idempotency-Key": "key-2"}),
            make_call(protocol, provider, body, mode=mode, headers={"Idempotency-Key": "key-2"}),
        ]
        # An idempotency key belongs to its owner, and all cases of a group have the same owner.
        own = f"{protocol}-{provider}-{mode}"
        yield make_case(
            "one-answer", protocol, provider, mode, "continue", _with_separate_keys(keyed, own)
        )
        retried = [
            turn("", answers=(Refusal(status=500),), headers={"x-stainless-retry-count": "0"}),
            turn("", answers=(Refusal(status=500),), headers={"x-stainless-retry-count": "1"}),
            turn("", headers={"x-stainless-retry-count": "2"}),
            turn(answers=(Refusal(status=503),), headers={"x-stainless-retry-count": "0"}),
            turn(headers={"x-stainless-retry-count": "1"}),
            get(f"{ONE}?variants=true"),
        ]
        yield make_case("tried-again", protocol, provider, mode, "continue", retried)


def _with_separate_keys(calls: list[Call], name: str) -> Iterator[Call]:
    for call in calls:
        headers = {
            key: f"{value}-{name}" if key == "Idempotency-Key" else value
            for key, value in call.headers.items()
        }
        yield Call(path=call.path, headers=headers, body=call.body, save=call.save)


def conflict_cases() -> Iterator[Case]:
    """A second request while a turn runs, with each conflict policy."""
    held = Reply(pieces=("Slow ", "answer."), hold={1: NamedGate("gate")})
    ways = ("reject", "branch", "queue", "nonsense")
    for protocol, way, mode in itertools.product(PROTOCOLS, ways, MODES):
        provider = "anthropic" if protocol == "anthropic" else "openai"
        body = make_body(protocol, make_message("user", "Slow?"))
        first = make_call(protocol, provider, make_body(protocol), mode=mode, conversation="")
        slow = make_call(
            protocol,
            provider,
            body,
            mode=mode,
            conversation="{conversation}",
            answers=[held],
            background="slow",
        )
        second = make_call(
            protocol,
            provider,
            make_body(protocol, make_message("user", "Meanwhile")),
            mode=mode,
            conversation="{conversation}",
            headers={"X-On-Conflict": way},
        )
        steps: list[Action]
        if way == "queue":
            waiting = Call(
                path=second.path, headers=second.headers, body=second.body, background="queued"
            )
            # The queued request reaches the provider only once the slow turn has ended.
            steps = [first, slow, Open("gate"), Join("slow"), waiting, Join("queued"), get(ONE)]
        else:
            steps = [first, slow, second, get(ONE), Open("gate"), Join("slow"), get(ONE)]
        yield make_case(f"conflict-{way}", protocol, provider, mode, "continue", steps)


def disconnect_cases() -> Iterator[Case]:
    """Disconnects during a stream, with both settings of `on_disconnect`."""
    held = Reply(pieces=("One ", "two ", "three."), hold={1: NamedGate("gate")})
    for profile, protocol, provider in itertools.product(("plain", "keys"), PROTOCOLS, MAIN):
        headers = {} if profile == "plain" else OWNED
        leaving = make_call(
            protocol,
            provider,
            make_body(protocol),
            mode="stream",
            conversation="",
            answers=[held],
            headers=headers,
            leave_after=1,
        )
        steps: list[Action] = [leaving]
        if profile == "plain":
            steps.append(Open("gate"))
        steps += [Settle(ONE), get(f"{ONE}?variants=true", headers=headers)]
        resumed = {**headers, "Last-Event-ID": "1"}
        steps.append(get(f"{ONE}/turns/{{turn}}/events", headers=resumed))
        name = "leaving" if profile == "plain" else "leaving-cancels"
        yield make_case(name, protocol, provider, "stream", "new", steps, profile)


OWNED = {"Authorization": "Bearer key-of-ann-0123456789abcdef"}


def window_cases() -> Iterator[Case]:
    """Conversations that are longer than their window, with each strategy."""
    profiles = ("turn-window", "token-window", "summary-window")
    for profile, protocol, provider in itertools.product(profiles, PROTOCOLS, MAIN):
        mode = MODES[MAIN.index(provider) % 2]
        steps: list[Action] = []
        for number in range(8):
            text = f"Question {number}: " + "and a few more words to think about " * 8
            steps.append(
                make_call(
                    protocol,
                    provider,
                    make_body(protocol, make_message("user", text)),
                    mode=mode,
                    conversation="{conversation}" if number else "",
                    answers=[Reply(pieces=(f"Answer {number}.",), usage=(90 * (number + 1), 10))],
                )
            )
        steps += [get(f"{ONE}/turns/{{turn}}/prompt"), get(ONE)]
        yield make_case(f"window-{profile}", protocol, provider, mode, "continue", steps, profile)


def owner_cases() -> Iterator[Case]:
    """A server with keys: two owners, a system prefix, routes, fallbacks and limits."""
    ann = OWNED
    bob = {"x-api-key": "key-of-bob-0123456789abcdef"}
    for protocol, mode in itertools.product(PROTOCOLS, MODES):

        def turn(
            body: Json | None = None,
            headers: Json = ann,
            conversation: str | None = None,
            answers: tuple[Answer, ...] = (),
            provider: str = "openai",
            *,
            protocol: str = protocol,
            mode: str = mode,
        ) -> Call:
            return make_call(
                protocol,
                provider,
                body or make_body(protocol),
                mode=mode,
                conversation=conversation,
                answers=answers,
                headers=headers,
            )

        def named(model: str, *, protocol: str = protocol, mode: str = mode) -> Call:
            stream = {"stream": True} if mode == "stream" else {}
            body = make_body(protocol, model=model, **stream)
            return Call(path=turn().path, headers=ann, body=encode_body(body))

        many = make_body(protocol, *[make_message("user", f"{n}") for n in range(41)])
        deep: Any = "x"
        for _ in range(14):
            deep = [deep]
        scenarios: dict[str, list[Action]] = {
            "prefix": [
                turn(make_body(protocol, **_system(protocol, "Mine."))),
                turn(conversation=""),
                turn(conversation="{conversation}"),
                get(ONE, headers=ann),
                get(f"{ONE}/turns/{{turn}}/prompt", headers=ann),
            ],
            "owners": [
                turn(conversation=""),
                get(ONE, headers=bob),
                turn(headers=bob, conversation="{conversation}"),
                get(f"{CONVERSATIONS}/search?q=Hello", headers=bob),
                Call(method="DELETE", path=ONE, headers=bob),
                get(CONVERSATIONS, headers=bob),
                get(ONE),
                get(ONE, headers={"Authorization": "Bearer wrong-key-0123456789"}),
                get("/v1/usage", headers=bob),
            ],
            "routes": [
                named("house"),
                named("quick"),
                named("claude-sonnet-4-5"),
                named("no/such"),
            ],
            "fallbacks": [
                turn(answers=(Refusal(status=401),)),
                turn(answers=(Refusal(status=400),)),
                turn(answers=(Refusal(status=404), Refusal(status=403))),
                turn(
                    conversation="",
                    answers=(Refusal(status=400, message="Long", code="context_length_exceeded"),),
                ),
            ],
            "retries": [turn(answers=(Refusal(status=503, headers={"Retry-After": "0"}),))],
            "limits": [
                turn(many),
                turn(make_body(protocol, make_message("user", "x" * 61_000))),
                turn(make_body(protocol, novel=deep)),
            ],
            "origins": [
                turn(headers={**ann, "Origin": "https://example.org"}),
                turn(headers={**ann, "Origin": "https://evil.example"}),
                Call(
                    method="OPTIONS",
                    path=turn().path,
                    headers={
                        "Origin": "https://example.org",
                        "Access-Control-Request-Method": "POST",
                    },
                ),
            ],
        }
        for name, steps in scenarios.items():
            yield make_case(f"keyed-{name}", protocol, "openai", mode, "mixed", steps, "keys")


def _system(protocol: str, text: str) -> Json:
    if protocol == "anthropic":
        return {"system": text}
    return {"messages": [make_message("system", text), make_message("user", "Hello")]}


def conversation_cases() -> Iterator[Case]:
    """Yield all cases of this module."""
    yield from reply_cases()
    yield from refusal_cases()
    yield from lifetime_cases()
    yield from policy_cases()
    yield from invalid_request_cases()
    yield from import_cases()
    yield from tool_cases()
    yield from provider_switch_cases()
    yield from retry_cases()
    yield from conflict_cases()
    yield from disconnect_cases()
    yield from window_cases()
    yield from owner_cases()
