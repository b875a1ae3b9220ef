"""Sends requests to real servers: every route, header and kind of error at least once.

The first server has no keys and all providers, the second has keys, the third a very short turn
timeout. The names of the requests are headings in the surface files.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from tests.command import Cllm
from tests.fake_provider import (
    PROTOCOLS,
    FakeProvider,
    OpenAIChat,
    Reply,
    Request,
    Step,
    ToolCall,
    closed_port,
    response_steps,
)
from tests.home import Home
from tests.server_process import COMPLETIONS, Response, Server
from tests.surface_generator import third_party
from tests.surface_generator.shell import OFFLINE

MESSAGES = "/v1/messages"
COUNT = f"{MESSAGES}/count_tokens"
CONVERSATIONS = "/v1/conversations"
EMBEDDINGS = "/v1/embeddings"
MODEL = "openai/gpt-test"
SONNET = "claude-3-7-sonnet-20250219"
UNKNOWN = "00000000-0000-4000-8000-000000000000"
KEY = "key-of-ann-0123456789"
TOKEN_HEADER = "ANTHROPIC_AUTH_TOKEN"
ORIGIN = "https://page.example"
HELLO = {"role": "user", "content": "Hello."}
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}},
}
CALL = ToolCall(id="call_1", name="look", arguments='{"at": "sky"}')
PRICES = {"input": 1, "output": 2, "cache_read": 0.5, "cache_write": 1.5, "reasoning": 2}

SERVERS: dict[str, dict[str, Any]] = {
    "without keys": {
        "allowed_origins": [ORIGIN],
        "limits": {"body_bytes": 20_000, "depth": 20, "messages": 30, "parts": 30},
        "routes": {"house": MODEL},
    },
    "with keys": {
        "keys": [{"name": "laptop", "owner": "ann", "key": KEY}],
        "system_prefix": "Be brief.",
    },
    "in a hurry": {"limits": {"turn_seconds": 0.1}, "on_disconnect": "cancel"},
}


@dataclass(frozen=True)
class Exchange:
    """A named request and its response."""

    name: str
    method: str
    path: str
    sent_headers: Mapping[str, str]
    answer: Response


class Embeddings(OpenAIChat):
    """Embeddings with one number."""

    def echo(self, request: Request) -> Reply:  # noqa: ARG002
        return Reply()

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]:  # noqa: ARG002
        vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
        usage = {"prompt_tokens": 2, "total_tokens": 2}
        body = {"object": "list", "data": [vector], "model": "gpt-test", "usage": usage}
        return response_steps(200, json.dumps(body).encode())


@dataclass(frozen=True)
class Observed:
    """The observations of all servers."""

    exchanges: list[Exchange]
    logs: list[str]
    exit_code: int
    sent: list[Request]
    conversations: list[dict[str, Any]]

    def body(self, name: str) -> bytes:
        """Return the body of a response by the name of the request."""
        return next(one.answer.body for one in self.exchanges if one.name == name)


def observe(folder: Path) -> Observed:
    """Run all scenarios."""
    home = Home(folder)
    with pytest.MonkeyPatch.context() as patch, FakeProvider() as upstream:
        patch.setitem(PROTOCOLS, EMBEDDINGS, Embeddings())
        _write(home, _settings(upstream))
        store = f"sqlite:{folder / 'served.db'}"
        cllm = Cllm(home)
        cllm("Hello", "--conversation", "notes").succeeded()
        cllm("Hello", "--conversation", "named", "--store", store).succeeded()
        home.write_conversation("broken", b"{")
        upstream.requests.clear()
        servers = {
            "without keys": Scenarios.run_all,
            "with keys": Scenarios.run_with_keys,
            "in a hurry": Scenarios.run_with_short_timeout,
        }
        exchanges: list[Exchange] = []
        logs: list[str] = []
        environment = home.environment | OFFLINE | third_party.install(home.path / "site")
        for name, scenario in servers.items():
            _write(home, _settings(upstream, **SERVERS[name]))
            url = store if name == "without keys" else "memory:"
            with Server(environment=environment, directory=home.work, store=url) as server:
                scenarios = Scenarios(server, upstream)
                scenario(scenarios)
                exchanges += scenarios.exchanges
                server.terminate()
                exit_code = server.wait()
            logs += server.log.splitlines()
        return Observed(
            exchanges=exchanges,
            logs=logs,
            exit_code=exit_code,
            sent=upstream.requests,
            conversations=[home.load("notes"), *_read_exports(exchanges)],
        )


def _read_exports(exchanges: list[Exchange]) -> list[dict[str, Any]]:
    """Return the exported conversation files."""
    exports = (one.answer for one in exchanges if one.path.endswith("/export"))
    return [answer.json for answer in exports if answer.status == 200]


def _settings(upstream: FakeProvider, **server: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "num_retries": 0,
        "providers": {
            "anthropic": {"api_base": upstream.root, "api_key": "sk-ant-0123456789"},
            "bedrock": {"endpoint_url": upstream.root, "api_key": "bedrock-0123456789"},
            "gone": {"type": "openai", "api_base": f"http://127.0.0.1:{closed_port()}/v1"},
            "openai": {
                "api_base": upstream.url,
                "api_key": "sk-openai-0123456789",
                "models": ["gpt-test"],
                "prices": {"gpt-test": PRICES},
            },
        },
        "server": server,
    }


def _write(home: Home, settings: dict[str, Any]) -> None:
    file = home.path / ".cllm/Cllmfile.yml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    file.chmod(0o600)


class Scenarios:
    """Sends requests to one server and records them with their responses."""

    def __init__(self, server: Server, upstream: FakeProvider) -> None:
        self.exchanges: list[Exchange] = []
        self._server = server
        self._upstream = upstream

    def send(
        self,
        name: str,
        method: str,
        path: str,
        body: Any = None,
        **headers: str,
    ) -> Response:
        """Send a request. Underscores in header names become hyphens, except in TOKEN_HEADER."""
        encoded = {
            key if key == TOKEN_HEADER else key.replace("_", "-"): value
            for key, value in headers.items()
        }
        answer = self._server(method, path, body, encoded)
        self.exchanges.append(Exchange(name, method, path, encoded, answer))
        return answer

    def complete(self, name: str, *messages: Any, headers: Any = None, **fields: Any) -> Response:
        """Send a chat completion, by default with one greeting."""
        body = {"model": MODEL, "messages": list(messages) or [HELLO], **fields}
        return self.send(name, "POST", COMPLETIONS, body, **(headers or {}))

    def message(self, name: str, *messages: Any, headers: Any = None, **fields: Any) -> Response:
        """Send a request to the Messages API. Fields that are None are omitted."""
        body = {"model": SONNET, "max_tokens": 100, "messages": list(messages) or [HELLO], **fields}
        sent = {key: value for key, value in body.items() if value is not None}
        return self.send(name, "POST", MESSAGES, sent, **(headers or {}))

    def run_all(self) -> None:
        self._about_the_server()
        conversation = self._completions()
        self._completion_errors()
        self._provider_errors()
        self._other_providers()
        self._conflicts(conversation)
        self._idempotency()
        self._messages()
        self._message_errors()
        self._token_counts()
        self._embeddings()
        self._turns(conversation)
        self._conversations(conversation)
        self._origins()
        self._disconnect()
        self.send("metrics", "GET", "/metrics")

    def _about_the_server(self) -> None:
        self.send("health", "GET", "/health")
        self.send("health, HEAD", "HEAD", "/health")
        self.send("ready", "GET", "/ready")
        self.send("docs", "GET", "/docs")
        self.send("description", "GET", "/openapi.json")
        self.send("models", "GET", "/v1/models")
        self.send("a model", "GET", "/v1/models/openai/gpt-test")
        self.send("a model that is not known", "GET", "/v1/models/nobody/none")
        self.send("no such route", "GET", "/v2/nothing")
        self.send("no such route below messages", "GET", "/v1/messages/nothing")
        self.send("a method that a route does not have", "PUT", CONVERSATIONS)

    def _completions(self) -> str:
        self.complete("completion without a conversation")
        self.complete("completion, streamed", stream=True)
        self.complete(
            "completion, streamed with usage", stream=True, stream_options={"include_usage": True}
        )
        self.complete("completion by a route of the settings", model="house")
        self.complete("completion by a bare name", model="gpt-test")
        self.complete(
            "completion with X-Provider", model="gpt-test", headers={"X_Provider": "openai"}
        )
        self._upstream.queue_reply("Thinking is over.", reasoning=("Hm.",))
        self.complete("completion with reasoning")
        self._upstream.queue_reply("Thinking is over.", reasoning=("Hm.",))
        self.complete("completion with reasoning, streamed", stream=True)
        self._upstream.queue_reply("Cut", finish="length")
        self.complete("completion that reached its limit", max_tokens=1)
        first = self.complete("completion that begins a conversation", headers=_in(""))
        conversation = _conversation(first)
        self.complete("completion that begins a conversation by null", headers=_in("null"))
        here = _in(conversation)
        self.complete("completion that continues a conversation", headers=here)
        self.complete("completion that continues, streamed", headers=here, stream=True)
        self.complete(
            "completion with two system messages",
            {"role": "system", "content": "One."},
            {"role": "developer", "content": "Two."},
            HELLO,
            headers=here,
        )
        self._tools(here)
        self.send("regenerate", "POST", COMPLETIONS, {"model": MODEL, "messages": []}, **here)
        self.complete("completion in a conversation of the folder", headers=_in("files:notes"))
        return conversation

    def _tools(self, here: dict[str, str]) -> None:
        for name, stream in (("completion with a tool call", False), ("the same, streamed", True)):
            self._upstream.queue_reply(tool_calls=(CALL,), finish="tool_calls")
            self.complete(name, HELLO, tools=[TOOL], stream=stream, headers=here)
            result = {"role": "tool", "tool_call_id": "call_1", "content": "Blue."}
            self.complete("completion with a tool result", result, tools=[TOOL], headers=here)

    def _completion_errors(self) -> None:
        wrong = {"X_Provider": "no name", "X_On_Conflict": "?", "X_CLLM_Strict": "?"}
        wrong |= {"Idempotency_Key": "x" * 300, "x_anthropic_api_key": "two words"}
        for header, value in wrong.items():
            self.complete(f"a wrong {header.replace('_', '-')}", headers={header: value})
        self.complete("X-Provider against the model", headers={"X_Provider": "anthropic"})
        self.complete("X-Provider that is not known", headers={"X_Provider": "nobody"})
        self.complete("a wrong X-Conversation-ID", headers=_in("two words"))
        self.complete("an unknown conversation", headers=_in(UNKNOWN))
        self.complete("an unknown conversation of the folder", headers=_in("files:none"))
        self.complete("a broken conversation of the folder", headers=_in("files:broken"))
        self.complete("an unknown model", model="nobody/none")
        self.complete("a provider without a key", model="groq/none")
        self.send("no messages", "POST", COMPLETIONS, {"model": MODEL, "messages": []})
        self.send("no model", "POST", COMPLETIONS, {"messages": [HELLO]})
        self.send("a body that is no JSON", "POST", COMPLETIONS, b"{")
        self.send("a body that is a list", "POST", COMPLETIONS, [])
        self.complete("messages of the wrong type", messages="Hello")
        self.complete("a message without a role", {"content": "Hello"})
        self.complete("too many messages", *[HELLO] * 31)
        self.complete("a body that is too long", {"role": "user", "content": "x" * 30_000})
        deep: Any = {}
        for _ in range(30):
            deep = {"deeper": deep}
        self.complete("a body that is nested too deeply", metadata=deep)
        self.complete(
            "a strict request that has to be changed",
            model=f"anthropic/{SONNET}",
            seed=1,
            headers={"X_CLLM_Strict": "true"},
        )

    def _provider_errors(self) -> None:
        for status in (400, 401, 403, 404, 413, 422, 429, 500, 503, 529):
            self._upstream.queue_error(status)
            self.complete(f"the provider answers {status}")
        self._upstream.queue_error(429, retry_after="7")
        self.complete("the provider answers 429 with Retry-After")
        self._upstream.queue_error(400, "Too long.", code="context_length_exceeded")
        self.complete("the provider says that the prompt is too long")
        self._upstream.queue_error(500)
        self.complete("the provider answers 500 in a conversation", headers=_in(""))
        self._upstream.queue_error(500)
        self.complete("the provider answers 500 to a stream", stream=True)
        self._upstream.queue_reply("Once ", "upon", stop_after=1)
        self.complete("the provider breaks a stream off", stream=True)
        self._upstream.queue_reply("Once ", "upon", stop_after=1)
        self.complete("the provider breaks a stored stream off", stream=True, headers=_in(""))
        self._upstream.queue_reply("Once", stop_after=1)
        self.complete("the provider breaks a whole answer off")
        self._upstream.queue_reply("Once", garbage_before=0)
        self.complete("the provider streams what is no JSON", stream=True)
        self._upstream.queue_steps(*response_steps(200, b"<html>"))
        self.complete("the provider answers with what is no JSON")
        self.complete("the provider cannot be reached", model="gone/none")
        self.complete("a provider of another package", model="parrot/grey")
        self.complete("a provider of another package that fails", model="faulty/grey")
        self.message("the same, Messages API", model="faulty/grey")

    def _other_providers(self) -> None:
        for model in (f"anthropic/{SONNET}", f"bedrock/{SONNET}"):
            for stream in (False, True):
                name = f"completion of {model}{', streamed' * stream}"
                self._upstream.queue_reply("Well.", reasoning=("Hm.",), cached=(3, 5))
                self.complete(name, model=model, stream=stream, headers=_in(""))
                self._upstream.queue_reply(tool_calls=(CALL,), finish="tool_calls")
                self.complete(f"{name}, with a tool call", model=model, stream=stream, tools=[TOOL])
        self.complete(
            "completion with fields that Anthropic does not have",
            {"role": "user", "name": "Ann", "content": "Hello."},
            model=f"anthropic/{SONNET}",
            seed=1,
            logit_bias={},
            novel=True,
        )

    def _conflicts(self, conversation: str) -> None:
        here = _in(conversation)
        gate = self._upstream.queue_held_reply("Held.", at=0)
        count = len(self._upstream.requests)
        with ThreadPoolExecutor(2) as pool:
            running = pool.submit(self.complete, "the turn that runs", headers=here, stream=True)
            self._upstream.wait_for(count + 1)
            self.complete("another turn runs", headers=here)
            self.complete("another turn runs: branch", headers={**here, "X_On_Conflict": "branch"})
            self.message("another turn runs, Messages API", headers=here)
            queued = pool.submit(
                self.complete,
                "another turn runs: queue",
                headers={**here, "X_On_Conflict": "queue"},
            )
            gate.open()
            running.result()
            queued.result()
        last = [
            one for one in self.exchanges if "turn that runs" in one.name or "queue" in one.name
        ]
        self.exchanges = [one for one in self.exchanges if one not in last]
        self.exchanges += sorted(last, key=lambda one: one.name)

    def _idempotency(self) -> None:
        once = {"Idempotency_Key": "once", **_in("")}
        self.complete("a request with a key", headers=once)
        self.complete("the same request with that key", headers=once)
        self.complete("another request with that key", novel=1, headers=once)
        self._upstream.queue_error(500)
        again = {**_in(""), "x_stainless_retry_count": "0"}
        self.complete("the first attempt of a library", headers=again)
        self.complete(
            "the second attempt of a library", headers={**again, "x_stainless_retry_count": "1"}
        )

    def _messages(self) -> None:
        for provider in ("anthropic", "bedrock", "openai"):
            model = MODEL if provider == "openai" else f"{provider}/{SONNET}"
            for stream in (False, True):
                name = f"message of {provider}{', streamed' * stream}"
                self._upstream.queue_reply("Well.", reasoning=("Hm.",), cached=(3, 5))
                first = self.message(name, model=model, stream=stream, headers=_in(""))
                self._upstream.queue_reply(tool_calls=(CALL,), finish="tool_calls")
                tool = {"name": "look", "input_schema": {"type": "object"}}
                here = _in(_conversation(first))
                self.message(
                    f"{name}, with a tool call",
                    model=model,
                    stream=stream,
                    tools=[tool],
                    headers=here,
                )
        self.message("message without a conversation")
        self.message("message without max_tokens", max_tokens=None)
        self.message("message with another version", headers={"anthropic_version": "2020-01-01"})
        self.message("message with an unknown beta", headers={"anthropic_beta": "novel-2020-01-01"})
        self.message("message with the caller's key", headers={"x_anthropic_api_key": "sk-ant-own"})
        own = {"x_anthropic_api_key": "sk-ant-own"}
        self.message("message with a caller's key that is not used", model=MODEL, headers=own)
        token = {TOKEN_HEADER: "sk-ant-oat-own"}
        self.message("message with the caller's token", headers=token)
        body = {"model": SONNET, "max_tokens": 9, "messages": [HELLO]}
        self.send("message with ?beta=true", "POST", f"{MESSAGES}?beta=true", body)

    def _message_errors(self) -> None:
        for status in (400, 401, 403, 404, 413, 429, 500, 529):
            self._upstream.queue_error(status)
            self.message(f"message, the provider answers {status}")
        self._upstream.queue_error(429, retry_after="7")
        self.message("message, the provider answers 429 with Retry-After")
        self._upstream.queue_reply(
            "Once ", "upon", stop_after=1, error=("overloaded_error", "Too much.")
        )
        self.message("message, an error in the stream", stream=True)
        self._upstream.queue_reply("Once ", "upon", stop_after=1)
        self.message("message, the stream breaks off", stream=True)
        self.message("message, an unknown model", model="nobody/none")
        self.message("message, an unknown conversation", headers=_in(UNKNOWN))
        self.message("message, a wrong conversation", headers=_in("two words"))
        self.message("message, no messages", messages=[])
        self.message("message, a wrong field", max_tokens="many")
        self.message("message, a body that is too long", {"role": "user", "content": "x" * 30_000})
        self.message("message, a thread", model=MODEL, thread={"id": "thread_1"})

    def _token_counts(self) -> None:
        for name, model in (
            ("Anthropic", SONNET),
            ("Bedrock", f"bedrock/{SONNET}"),
            ("OpenAI", MODEL),
        ):
            body = {"model": model, "messages": [HELLO]}
            self.send(f"count tokens of {name}", "POST", COUNT, body)
        self.send("count tokens, no messages", "POST", COUNT, {"model": SONNET, "messages": []})

    def _embeddings(self) -> None:
        body = {"model": MODEL, "input": "Hello."}
        self.send("embeddings", "POST", EMBEDDINGS, body)
        self.send("embeddings of a provider without", "POST", EMBEDDINGS, body | {"model": SONNET})
        self.send(
            "embeddings of an unknown model", "POST", EMBEDDINGS, body | {"model": "nobody/none"}
        )
        self.send("embeddings without input", "POST", EMBEDDINGS, {"model": MODEL})

    def _turns(self, conversation: str) -> None:
        here = f"{CONVERSATIONS}/{conversation}"
        streamed = self.complete("a stream to look at", headers=_in(conversation), stream=True)
        turns = f"{here}/turns"
        turn = f"{turns}/{_turn(streamed)}"
        self.send("a turn", "GET", turn)
        self.send("what a turn sent", "GET", f"{turn}/prompt")
        self.send("the events of a turn", "GET", f"{turn}/events")
        self.send("the events of a turn, the rest", "GET", f"{turn}/events", Last_Event_ID="1")
        self.send("the events of a turn, wrong", "GET", f"{turn}/events", Last_Event_ID="x")
        self.send("an unknown turn", "GET", f"{turns}/none")
        whole_turn = self.complete("a whole answer to look at", headers=_in(conversation))
        self.send("the events of a whole answer", "GET", f"{turns}/{_turn(whole_turn)}/events")
        failed = self._exchange("the provider answers 500 in a conversation").answer
        path = f"{CONVERSATIONS}/{_conversation(failed)}"
        self.send("a failed turn", "GET", f"{path}/turns/{_turn(failed)}")
        self.send("a conversation with a failed turn", "GET", path)

    def _conversations(self, conversation: str) -> None:
        here = f"{CONVERSATIONS}/{conversation}"
        self._lists()
        self._new_conversations()
        self._reads(here)
        self._exports(here)
        self._changes(conversation)
        self._folder()
        self.send("usage", "GET", "/v1/usage")
        self.send("usage by model", "GET", "/v1/usage?by=model")
        self.send("usage, wrong", "GET", "/v1/usage?from=yesterday")

    def _lists(self) -> None:
        listed = self.send("list", "GET", CONVERSATIONS).json.get("conversations", [])
        named = next((one.get("id") for one in listed if one.get("name") == "named"), UNKNOWN)
        self.send("export of a conversation with a name", "GET", f"{CONVERSATIONS}/{named}/export")
        page = self.send("list, a page", "GET", f"{CONVERSATIONS}?limit=1")
        cursor = quote(str(page.json.get("next_cursor")))
        self.send("list, the next page", "GET", f"{CONVERSATIONS}?limit=1&cursor={cursor}")
        self.send("list, archived", "GET", f"{CONVERSATIONS}?archive_filter=archived")
        self.send("list of the folder", "GET", f"{CONVERSATIONS}?store=files")
        self.send("list, a wrong limit", "GET", f"{CONVERSATIONS}?limit=0")
        self.send("list, a wrong cursor", "GET", f"{CONVERSATIONS}?cursor=none")
        self.send("search", "GET", f"{CONVERSATIONS}/search?q=hello&limit=2")
        self.send("search of the folder", "GET", f"{CONVERSATIONS}/search?q=hello&store=files")
        self.send("search without words", "GET", f"{CONVERSATIONS}/search")

    def _new_conversations(self) -> None:
        self.send("create", "POST", CONVERSATIONS)
        full = {"title": "Cats", "metadata": {"colour": "red"}, "system_policy": "captured"}
        made = self.send("create with everything", "POST", CONVERSATIONS, full).json.get(
            "id", UNKNOWN
        )
        self.send("create with a wrong field", "POST", CONVERSATIONS, {"title": 7})
        self.send("create with an unknown field", "POST", CONVERSATIONS, {"novel": 7})
        pinned = {"system_policy": "pinned"}
        pin = self.send("create, pinned", "POST", CONVERSATIONS, pinned).json.get("id", UNKNOWN)
        system = {"role": "system", "content": "Be kind."}
        self.complete("completion that pins a prompt", system, HELLO, headers=_in(pin))
        self.complete("completion under a captured prompt", system, HELLO, headers=_in(made))
        self.complete("completion with an ignored prompt", system, HELLO, headers=_in(pin))
        self.send("a pinned conversation", "GET", f"{CONVERSATIONS}/{pin}")
        self.send("export of a pinned conversation", "GET", f"{CONVERSATIONS}/{pin}/export")

    def _reads(self, here: str) -> None:
        self.send("a conversation", "GET", here)
        self.send("a conversation with variants", "GET", f"{here}?variants=true")
        self.send("a part of a conversation", "GET", f"{here}?after=1&limit=2")
        self.send("a conversation of the folder", "GET", f"{CONVERSATIONS}/files:notes")
        self.send("an unknown conversation to read", "GET", f"{CONVERSATIONS}/{UNKNOWN}")
        self.send("a wrong id to read", "GET", f"{CONVERSATIONS}/two%20words")
        number = self.send("a message by number", "GET", f"{here}/messages/2").json
        self.send("a message by id", "GET", f"{here}/messages/{number.get('id')}")
        self.send("an unknown number", "GET", f"{here}/messages/999")
        self.send("an unknown message", "GET", f"{here}/messages/none")

    def _changes(self, conversation: str) -> None:
        here = f"{CONVERSATIONS}/{conversation}"
        branch = {"branch_at_sequence": 2}
        branched = self.send("branch", "POST", f"{here}/branch", branch).json.get("id", UNKNOWN)
        self.send("branch at no message", "POST", f"{here}/branch", {"branch_at_sequence": 999})
        self.send("branch at a wrong number", "POST", f"{here}/branch", {"branch_at_sequence": 0})
        self.send("rename", "PATCH", here, {"title": "Dogs", "metadata": {"a": [1]}})
        self.send("archive", "PATCH", here, {"archived": True})
        self.complete("completion in the archive", headers=_in(conversation))
        self.send("bring back", "PATCH", here, {"archived": False})
        self.send("rename wrongly", "PATCH", here, {"archived": "yes"})
        self.send("delete messages", "DELETE", f"{here}/messages/3")
        self.send("delete no message", "DELETE", f"{here}/messages/999")
        self.send("delete a wrong message", "DELETE", f"{here}/messages/x")
        self.send("delete", "DELETE", f"{CONVERSATIONS}/{branched}")
        self.send("delete for good", "DELETE", f"{CONVERSATIONS}/{branched}?permanent=true")
        self.send("delete an unknown one", "DELETE", f"{CONVERSATIONS}/{UNKNOWN}")

    def _exports(self, here: str) -> None:
        exported = self.send("export", "GET", f"{here}/export").body
        thinking = _conversation(self._exchange("message of anthropic").answer)
        short = f"{CONVERSATIONS}/{thinking}/export"
        self.send("export of other messages", "GET", short)
        self.send("export, Markdown", "GET", f"{short}?format=markdown")
        self.send("export, HTML", "GET", f"{short}?format=html")
        self.send("export, wrong", "GET", f"{short}?format=pdf")
        self.send("export of the folder", "GET", f"{CONVERSATIONS}/files:notes/export")
        self.send("import", "POST", f"{CONVERSATIONS}/import", exported)
        self.send("import, wrong", "POST", f"{CONVERSATIONS}/import", {"messages": 7})

    def _folder(self) -> None:
        """Change a conversation of the folder, so that its file has all fields."""
        here, notes = _in("files:notes"), f"{CONVERSATIONS}/files:notes"
        self._upstream.queue_error(500)
        self.complete("a failed turn in a conversation of the folder", headers=here)
        self.complete("regenerate in the folder", messages=[], headers=here)
        self._upstream.queue_reply("Well.", reasoning=("Hm.",), cached=(3, 5))
        self.message("message in a conversation of the folder", headers=here)
        calls = (CALL, replace(CALL, id="call_2"))
        self._upstream.queue_reply(tool_calls=calls, finish="tool_calls")
        tool = {"name": "look", "input_schema": {"type": "object"}}
        self.message("two tool calls in the folder", tools=[tool], headers=here)
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": "Blue."} for call in calls
        ]
        answered = {"role": "user", "content": results}
        self.message("two tool results in the folder", answered, tools=[tool], headers=here)
        self._upstream.queue_error(500)
        self.complete("a failed turn that stays in the folder", headers=here)
        mine = {"title": "Notes", "metadata": {"colour": "red", "cllm": 1, "system": {}}}
        self.send("rename a conversation of the folder", "PATCH", notes, mine)
        self.send("archive a conversation of the folder", "PATCH", notes, {"archived": True})
        self.send("export of the changed folder", "GET", f"{notes}/export")

    def _exchange(self, name: str) -> Exchange:
        return next(one for one in self.exchanges if one.name == name)

    def _origins(self) -> None:
        self.send("an allowed origin", "GET", "/health", Origin=ORIGIN)
        self.send("a foreign origin", "GET", "/health", Origin="https://evil.example")
        self.send("a foreign host", "GET", "/health", Host="evil.example")
        self.send("a foreign host, Messages API", "GET", f"{MESSAGES}/x", Host="evil.example")
        self.send(
            "a preflight",
            "OPTIONS",
            COMPLETIONS,
            Origin=ORIGIN,
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="content-type, x-conversation-id",
        )

    def _disconnect(self) -> None:
        """Disconnect in the middle of a stream."""
        gate = self._upstream.queue_held_reply("Once ", "upon", at=1)
        body = {"model": MODEL, "messages": [HELLO], "stream": True}
        opened = self._server.open("POST", COMPLETIONS, body)
        opened.event()
        opened.leave()
        self._upstream.requests[-1].wait_disconnected()
        gate.open()

    def run_with_keys(self) -> None:
        self.send("health without a key", "GET", "/health")
        self.send("metrics without a key", "GET", "/metrics")
        self.send("no key", "GET", CONVERSATIONS)
        self.send("no key, Messages API", "POST", MESSAGES, {"model": SONNET})
        self.send("a wrong key", "GET", CONVERSATIONS, Authorization="Bearer wrong-0123456789")
        self.send("a key in Authorization", "GET", CONVERSATIONS, Authorization=f"Bearer {KEY}")
        self.send("a key in x-api-key", "GET", CONVERSATIONS, x_api_key=KEY)
        mine = {"x_api_key": KEY}
        self.send("files of a server with keys", "GET", f"{CONVERSATIONS}?store=files", **mine)
        system = {"role": "system", "content": "Be kind."}
        self.complete("completion under the operator's prompt", system, HELLO, headers=mine)

    def run_with_short_timeout(self) -> None:
        gate = self._upstream.queue_held_reply("Late.", at=0)
        self.complete("a turn that takes too long", headers=_in(""))
        gate.open()


def _conversation(answer: Response) -> str:
    return answer.headers.get("x-conversation-id", UNKNOWN)


def _turn(answer: Response) -> str:
    return answer.headers.get("x-turn-id", UNKNOWN)


def _in(conversation: str) -> dict[str, str]:
    return {"X_Conversation_ID": conversation}
