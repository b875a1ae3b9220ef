"""Runs commands and records their output, exit codes, requests and files.

Each function is a subject with a separate home directory. The provider is a fake on loopback. The
names of the functions are headings in the surface files.
"""

import base64
import json
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tests.fake_responses  # noqa: F401 - adds the Responses API to the fake provider
from tests.fake_provider import FakeProvider, Request, ToolCall, closed_port, response_steps
from tests.forking import fork_server
from tests.surface_generator import third_party
from tests.surface_generator.shapes import Shape
from tests.surface_generator.shell import Shell

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
BROKEN = "broken"
SCHEMA = '{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}'
FILTERS = (
    "echo {{ NAME | lower | upper | title | trim | replace('L', 'l') }} {{ N | int }} "
    "{{ N | float }} {{ NAME | length }} {{ NAME | default('x') }} {{ NAME | shellquote }}"
)
PROGRAMS = (
    "awk basename cat cd chmod cp curl cut date df diff dirname du echo env file find free git "
    "grep head hostname id kill less ln ls make mkdir mv nproc ps pwd python3 readlink realpath "
    "rm rg sed sh sort stat tail tar tee test touch tr tree true uname uniq uptime wc wget which "
    "whoami xargs"
)
SONNET = "anthropic/claude-3-7-sonnet-20250219"
CHAT = """Hello.
stats
/help
/new
My cat is called Luna.
/model
/system
/context
/context echo now
What is she called?
/list
/search Luna
/search nowhere
/title
/title Cats
/regenerate
/undo
One more.
/branch
/branch 1
/save cats
/tokens
/pin
/pin list
/pin 1
/unpin 1
/compact
/compact undo
/attach notes.txt
Read this.
/export chat.md
/export chat.json
/export chat.md
/open cats
/open nobody
/model openai/gpt-other
/system Be brief.
/stats
/nonsense
/undo 2
//slash
clear
quit
"""

PINS = """One.
Two.
Three.
/pin 1
/compact
/context
/tokens
/compact undo
/compact
Four.
/compact
/regenerate
/title Numbers
quit
"""


@dataclass(frozen=True)
class Observed:
    """The observations of one subject."""

    subject: str
    transcript: list[str]
    sent: list[Request]
    logs: list[dict[str, Any]]
    conversations: list[dict[str, Any]]


def observe(folder: Path) -> list[Observed]:
    """Run all subjects, some in parallel."""
    fork_server()
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda subject: _observe(subject, folder), SUBJECTS))


def _observe(subject: Callable[[Shell], None], folder: Path) -> Observed:
    name = subject.__name__
    with FakeProvider() as provider:
        shell = Shell(folder / name, provider)
        try:
            subject(shell)
        finally:
            shell.cllm.close()
        return Observed(
            subject=name.replace("_", " "),
            transcript=shell.lines,
            sent=provider.requests,
            logs=_read_logs(shell),
            conversations=_read_conversations(shell),
        )


def _read_logs(shell: Shell) -> list[dict[str, Any]]:
    files = shell.home.work.glob("*.log")
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return [json.loads(line) for line in lines if line.startswith("{")]


def _read_conversations(shell: Shell) -> list[dict[str, Any]]:
    files = sorted(shell.home.path.parent.rglob("conversations/*.json"))
    return [json.loads(file.read_bytes()) for file in files if file.stem != BROKEN]


def asking(shell: Shell) -> None:
    shell()
    shell("Hello")
    shell(stdin="From a pipe\n")
    shell("Hello", stdin="and a pipe\n")
    shell("--no-stream", "Hello")
    for way in ("--stream", "--no-stream"):
        shell.note_fields(shell("--raw", way, "Hello", hides_output=True).out)
    shell.provider.queue_reply("Cut", finish="length")
    shell("Hello", "--max-tokens", "1")
    shell.provider.queue_reply()
    shell("Hello")
    shell.provider.queue_reply("Done.", reasoning=("Hm.",))
    shell("Hello")
    shell("--temperature", "0.5", "--system", "Be brief.", "Hello")
    shell.note_sent()
    shell("--list-models")
    shell("--version")
    shell("--", "-5 + 3")


def wrong_usage(shell: Shell) -> None:
    shell("--nonsense", "Hello")
    shell("-5 + 3")
    shell("--max-tokens", "0", "Hello")
    shell("--temperature", "hot", "Hello")
    shell("--temperature", "nan", "Hello")
    shell("--system-policy", "none", "Hello")
    shell("-m", "", "Hello")
    shell("--var", "novalue", "Hello")
    shell("--system", "One.", "--system-file", "two.txt", "Hello")
    shell("--system-file", "none.txt", "Hello")
    shell("--store", "nowhere:x", "--conversation", "cats", "Hello")
    shell("--store", "sqlite://cats.db", "--conversation", "cats", "Hello")
    shell("logs", "-n", "3")
    shell("show", "cats")
    shell("list", "the", "rivers", "of", "France")
    shell("keys", "add", "openai")
    shell("conversations", "nonsense")
    shell("conversations", "show")
    shell("completion", "tcsh")
    shell("chat", "--no-save", "cats")
    shell("serve", "--port", "99999")
    shell("serve", "--host", "0.0.0.0")
    shell("Hello", stdin="\0")


def errors_of_providers(shell: Shell) -> None:
    shell("-m", "nobody/none", "Hello")
    shell("-m", "novel", "Hello")
    shell("-m", "groq/none", "Hello")
    for status in (400, 401, 403, 404, 413, 429, 500, 529):
        shell.provider.queue_error(status)
        shell("Hello")
    shell.provider.queue_error(429, retry_after="7")
    shell("Hello")
    shell.provider.queue_error(400, "Too long.", code="context_length_exceeded")
    shell("Hello")
    shell.provider.queue_reply("Once ", "upon", stop_after=1)
    shell("Hello")
    shell.provider.queue_reply("Once", garbage_before=0)
    shell("Hello")
    shell.provider.queue_steps(*response_steps(200, b"<html>"))
    shell("--no-stream", "Hello")
    gone = {"api_base": f"http://127.0.0.1:{closed_port()}/v1"}
    shell.configure(providers={"gone": gone})
    shell("-m", "gone/none", "Hello")
    shell.configure(providers={"openai": {"api_base": "http://model.example/v1"}})
    shell("Hello", env={"HTTP_PROXY": shell.provider.root})


def notices(shell: Shell) -> None:
    anthropic = {"api_base": shell.provider.root, "api_key": "sk-ant-0123456789"}
    shell.configure(providers={"anthropic": anthropic}, seed=1, tempperature=1, api_version="x")
    shell("-m", SONNET, "Hello")
    shell.configure(providers={"anthropic": anthropic}, seed=1, strict=True)
    shell("-m", SONNET, "Hello")
    shell.configure(fallbacks=["openai/gpt-other"])
    shell.provider.queue_error(503)
    shell("Hello")
    shell.provider.queue_error(503)
    shell.provider.queue_error(503)
    shell("Hello")


def keys_of_providers(shell: Shell) -> None:
    shell.write("empty.gguf", "nothing")
    wrong: tuple[tuple[str, dict[str, Any]], ...] = (
        ("openai/gpt-test", {"openai": {"api": "?"}}),
        ("openai/gpt-test", {"openai": {"profile": ["?"]}}),
        ("openai/gpt-test", {"openai": {"prices": "?"}}),
        ("mine/none", {"mine": {"type": "?"}}),
        ("mine/none", {"mine": {"type": "openai"}}),
        (SONNET, {"anthropic": {"betas": "?", "api_key": "x"}}),
        ("local/./empty.gguf", {"local": {"threads": "?"}}),
        ("local/./empty.gguf", {"local": {"context": "?"}}),
    )
    for model, providers in wrong:
        shell.configure(providers=providers)
        shell("-m", model, "Hello")
    endpoint = {"endpoint_url": shell.provider.root, "api_key": "bedrock-0123456789"}
    for region in ("us-east-1", "eu-central-1"):
        shell.configure(providers={"bedrock": {**endpoint, "region": region}})
        shell("-m", "bedrock/claude-3-7-sonnet-20250219", "Hello")
        shell.note("asked", [shell.provider.requests[-1].path])
    responses = {"api": "responses", "api_base": shell.provider.url, "api_key": "x"}
    shell.configure(providers={"openai": responses})
    shell("Hello")
    shell.note("asked", [shell.provider.requests[-1].path])


def packages_with_providers(shell: Shell) -> None:
    env = third_party.install(shell.home.path / "site")
    shell("-m", "parrot/grey", "Hello", env=env)
    shell("-m", "parrot/grey", "Hello")


def conversations(shell: Shell) -> None:
    shell("--list-conversations")
    shell.configure(default_system_message="You are a vet.")
    shell("--conversation", "cats", "My cat is called Luna.")
    shell("--conversation", "cats", "What is she called?")
    shell("--conversation", "--", "A conversation without an id")
    shell("--conversation", "this is the prompt")
    shell("--conversation", "a/b", "Hello")
    shell("--read-only", "Hello")
    shell("--read-only", "--conversation", "dogs", "Hello")
    shell("--read-only", "--conversation", "cats", "Hello")
    shell("--system", "Other.", "--conversation", "cats", "Hello")
    shell("-m", "openai/gpt-other", "--conversation", "cats", "Hello")
    shell("--system-policy", "dynamic", "--conversation", "loose", "Hello")
    shell("--list-conversations")
    shell("--show-conversation", "cats")
    shell("--show-conversation", "dogs")
    shell("--show-conversation", "../x")
    shell("conversations", "list")
    shell("c", "show", "loose")
    shell("conversations", "branch", "cats", "--to", "kittens", "--at", "2")
    shell("conversations", "branch", "cats", "--to", "kittens")
    shell("conversations", "branch", "cats", "--system", "Be loud.", "--to", "loud")
    shell("conversations", "branch", "cats", "--at", "99", "--to", "none")
    shell("conversations", "stats")
    shell("conversations", "stats", "cats")
    shell.note_fields(shell("conversations", "stats", "cats", "--json", hides_output=True).out)
    shell.note_fields(shell("conversations", "stats", "--json", hides_output=True).out)
    shell.home.write_conversation(BROKEN, b"{")
    shell.home.write_old_conversation("old", ("user", "Hello"), ("assistant", "Hi"))
    for name in (BROKEN, "old"):
        shell.home.file(name).chmod(0o600)
    shell("--list-conversations")
    shell("--conversation", "broken", "Hello")
    shell("conversations", "migrate")
    shell("conversations", "migrate", "--add-system-prompt", "--dry-run")
    shell("conversations", "migrate", "--add-system-prompt")
    shell("--delete-conversation", "loud")
    shell("--delete-conversation", "loud")
    shell("conversations", "delete", "kittens")
    shell.note_files()


def stores(shell: Shell) -> None:
    shell("--store", "sqlite:cats.db", "--conversation", "cats", "Hello")
    shell("--store", "sqlite:cats.db", "--list-conversations")
    shell("--store", "json:folder", "--conversation", "cats", "Hello")
    shell("--conversations-path", "elsewhere", "--conversation", "cats", "Hello")
    shell.write("here/Cllmfile.yml", shell.settings_text())
    shell("--cllm-path", "here", "--conversation", "cats", "Hello")
    shell("--store", "postgresql://127.0.0.1:1/none", "--list-conversations")
    for option in ("pool_size", "pool_idle", "pool_timeout", "pool_patience"):
        url = f"postgresql://127.0.0.1:1/none?{option}=none"
        shell("--store", url, "--list-conversations")
    shell("--store", "sqlite:cats.db?synchronous=normal", "--list-conversations")
    shell("--store", "sqlite:cats.db?synchronous=none", "--list-conversations")
    shell("db", "check", "--store", "sqlite:cats.db")
    shell("db", "upgrade", "--store", "sqlite:new.db")
    shell("db", "downgrade", "0002", "--store", "sqlite:new.db")
    shell("db", "downgrade", "9999", "--store", "sqlite:new.db")
    shell("--store", "sqlite:new.db", "--list-conversations")
    shell("db", "adopt", "--store", "sqlite:new.db")
    shell("db", "upgrade", "--store", "json:folder")
    shell("db", "current")
    shell.note_files()


def settings_files(shell: Shell) -> None:
    shell("--show-config")
    shell("-C", "none", "Hello")
    shell.write("team.Cllmfile.yml", "temperature: 0.5\n")
    shell("-C", "team", "--show-config")
    shell.write("Cllmfile.yml", "temperature: [\n")
    shell("Hello")
    shell.write("Cllmfile.yml", "- a list\n")
    shell("Hello")
    shell.write("Cllmfile.yml", "context_commands:\n  - command: echo hi\n")
    shell("Hello")
    shell("--trust", "Hello")
    shell("Hello", env={"CLLM_TRUST": "always"})
    shell("trust")
    shell("Hello")
    shell("trust", "none.yml")
    shell.write("Cllmfile.yml", "temperature: hot\nstream: maybe\n")
    shell("Hello")
    shell.note_files()


def context(shell: Shell) -> None:
    commands = [
        {"name": "Git status", "command": "echo clean"},
        {"name": "Nothing", "command": "true"},
        {"name": "Broken", "command": "echo oops >&2; exit 3"},
        {"name": "Quiet", "command": "exit 3", "on_failure": "ignore"},
        {"name": "Slow", "command": "sleep 9", "timeout": 0.1},
        {"name": "Now", "command": "echo today", "dynamic": True},
    ]
    shell.configure(context_commands=commands, default_system_message="You are a vet.")
    shell("--conversation", "cats", "Hello", "--exec", "echo asked")
    shell.note_sent()
    shell("--conversation", "cats", "Again", "--exec", "echo later")
    shell.note_sent()
    shell("Hello", "--no-context-exec", "--exec", "echo only")
    shell.note_sent()
    must = [{"name": "Must", "command": "exit 4", "on_failure": "fail"}]
    shell.configure(context_commands=must)
    shell("Hello")
    filled = [{"command": "echo {{ NAME | shellquote }}"}]
    shell.configure(context_commands=filled, variables={"NAME": None})
    shell("Hello")
    shell("Hello", "--var", "NAME=Luna and Max")
    shell.note_sent()
    shell("Hello", "--var", "OTHER=1")
    shell.configure(context_commands=[{"command": FILTERS}], variables={"NAME": "Luna", "N": 7})
    shell("Hello")
    for wrong in ("{{ NAME | join }}", "{{ NAME.__class__ }}", "{% include 'x' %}"):
        shell.configure(context_commands=[{"command": wrong}], variables={"NAME": "x"})
        shell("Hello")
    shell.configure(context_commands=[{"command": "echo {{ NONE }}"}], variables={"NAME": "x"})
    shell("Hello")
    shell("--show-config")


def commands_of_the_model(shell: Shell) -> None:
    shell.write("notes.txt", "Luna is a cat.\n")
    wanted = (
        ("cat notes.txt", ("--allow-commands",)),
        ("rm notes.txt", ("--allow-commands",)),
        ("cat notes.txt; rm notes.txt", ("--allow-commands",)),
        ("cat $(echo notes.txt)", ("--allow-commands",)),
        ("cat notes.txt", ("--allow-commands", "--command-deny", "cat*")),
        ("echo hi", ("--allow-commands", "--command-allow", "echo*")),
        ("cat notes.txt", ("--allow-commands", "--confirm-commands")),
    )
    for command, flags in wanted:
        call = _tool_call("call_1", command)
        shell.provider.queue_reply(tool_calls=(call,), finish="tool_calls")
        shell("Look", *flags)
        tools = shell.provider.requests[-2].json.get("tools")
        *_, result = shell.last_request()["messages"]
        shell.note(f"result, {result['role']}:", str(result["content"]).splitlines())
    calls = [(f"call_{name}", name) for name in PROGRAMS.split()]
    shell.configure(dynamic_commands={"max_commands": 1000})
    shell.provider.queue_reply(
        tool_calls=tuple(_tool_call(*call) for call in calls), finish="tool_calls"
    )
    shell("Look", "--allow-commands", "--confirm-commands", hides_output=True)
    results = {one.get("tool_call_id"): one for one in shell.last_request()["messages"]}
    # A command that passes the rules is refused only because it needs confirmation, as `pwd` is.
    texts = {name: _read_result(results[id_], name) for id_, name in calls}
    allowed = [name for name in texts if texts[name] == texts["pwd"]]
    assert len(allowed) < len(calls), "all programs have the same result"
    shell.note("programs that need no rule", allowed)
    shell.note("tools", json.dumps(tools, indent=2, sort_keys=True).splitlines())


def _read_result(message: dict[str, Any], program: str) -> str:
    """Return the content of a tool message without the name of the program."""
    return re.sub(rf"\b{re.escape(program)}\b", "", str(message.get("content")))


def _tool_call(call: str, command: str) -> ToolCall:
    arguments = json.dumps({"command": command, "reason": "To see."})
    return ToolCall(id=call, name="execute_bash_command", arguments=arguments)


def schemas(shell: Shell) -> None:
    shell("--validate-schema", "--json-schema", SCHEMA)
    shell("--validate-schema", "--json-schema", '{"type": "novel"}')
    shell("--validate-schema")
    shell("--json-schema", "{", "Hello")
    shell("--json-schema-file", "none.json", "Hello")
    shell("--json-schema-file", "http://127.0.0.1/x.json", "Hello")
    shell("--json-schema", SCHEMA, "--json-schema-file", "x.json", "Hello")
    shell.provider.queue_reply('{"age": 7}')
    shell("--json-schema", SCHEMA, "Hello")
    shell.provider.queue_reply('{"age": "seven"}')
    shell("--json-schema", SCHEMA, "Hello")
    shell("--clear-schema-cache")


def attachments(shell: Shell) -> None:
    shell.write("notes.txt", "Luna is a cat.\n")
    (shell.home.work / "pixel.png").write_bytes(PIXEL)
    (shell.home.work / "novel.bin").write_bytes(b"\0\1\2")
    shell("-a", "notes.txt", "--conversation", "files", "Read this.")
    shell("-a", "pixel.png", "--conversation", "files", "Look.")
    *_, message = shell.last_request()["messages"]
    shell.note("sent", [line.strip() for line in Shape([message["content"]]).lines()])
    shell("--show-conversation", "files")
    shell("-a", "none.txt", "Hello")
    shell("-a", "novel.bin", "Hello")
    shell("-a", "-", "Hello", stdin="piped")
    shell("-a", "http://127.0.0.1/x.png", "Hello")


def chat(shell: Shell) -> None:
    shell.write("notes.txt", "Luna is a cat.\n")
    shell.configure(context_commands=[{"name": "Where", "command": "echo here"}])
    shell("chat", stdin=CHAT)
    shell("chat", "cats", "--no-stats", stdin="Again.\n")
    shell("chat", "--no-save", stdin="Hello.\n/save kept\nquit\n")
    shell.provider.queue_error(500)
    shell("chat", stdin="Hello.\n")
    shell("chat", "--max-turns", "1", stdin="One.\nTwo.\nThree.\nFour.\n")
    prices = {"gpt-test": {"input": 1, "output": 2}}
    shell.configure(providers={"openai": {"prices": prices}})
    shell("chat", "pinned", stdin=PINS)
    shell("chat", stdin="Hello.\n", env={"MODEL_NAME": "openai/gpt-other", "SHOW_STATS": "false"})
    shell("chat", stdin="", env={"MAX_CONTEXT_TURNS": "none"})
    shell("chat", stdin="", env={"MAX_TOKENS": "none"})
    shell("chat", stdin="", env={"TEMPERATURE": "none"})
    shell("chat", stdin="", env={"SHOW_STATS": "none"})
    shell.note_files()


def summaries(shell: Shell) -> None:
    window = {"strategy": "summarise", "max_tokens": 1000, "summary_tokens": 100}
    shell.configure(window=window)
    for number in range(7):
        for _ in range(2):
            shell.provider.queue_reply(f"Fine, {number}.", usage=None)
        long = f"Question {number}. {'word ' * 130}"
        done = shell.cllm("--conversation", "long", long)
        shell.record(f"cllm --conversation long 'Question {number}. …'", done)
    shell.provider._answers.clear()
    shell.configure(window={"strategy": "turns", "max_turns": 1})
    for number in range(4):
        shell("--conversation", "short", f"Question {number}.")


def other_providers(shell: Shell) -> None:
    prices = {"input": 1, "output": 2, "cache_read": 0.5, "cache_write": 1.5, "reasoning": 2}
    anthropic = {
        "api_base": shell.provider.root,
        "api_key": "sk-ant-0123456789",
        "prices": {SONNET.partition("/")[2]: prices},
    }
    shell.configure(providers={"anthropic": anthropic})
    shell.provider.queue_reply("Well.", reasoning=("Hm.",), cached=(3, 5))
    shell("-m", SONNET, "--conversation", "thinking", "Hello")
    shell("chat", "thinking", stdin="Hello.\nstats\n")
    shell.provider.queue_reply('{"age": 7}')
    shell("-m", SONNET, "--json-schema", SCHEMA, "Hello")
    shell("conversations", "stats", "thinking")
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 9,
        "total_tokens": 29,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    message = {"role": "assistant", "content": "Well."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "gpt-test"}
    answer = json.dumps(body | {"choices": [choice], "usage": usage}).encode()
    shell.provider.queue_steps(*response_steps(200, answer))
    shell("--conversation", "counted", "--no-stream", "Hello")
    usage = {"input_tokens": 5, "output_tokens": 3, "cache_creation_input_tokens": 9}
    usage |= {"cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 7}}
    said = [{"type": "text", "text": "Well."}]
    body = {"id": "x", "type": "message", "role": "assistant", "model": "x", "content": said}
    answer = json.dumps(body | {"stop_reason": "end_turn", "usage": usage}).encode()
    shell.provider.queue_steps(*response_steps(200, answer))
    shell("-m", SONNET, "--conversation", "hours", "--no-stream", "Hello")
    shell("conversations", "stats", "hours")


def interruptions(shell: Shell) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        shell.provider.queue_held_reply("Once upon a time ", "and never this", at=1)
        name = number.name.lower()
        running = shell.cllm.start("Tell me.", "--conversation", name)
        running.wait_for_output("Once upon a time ")
        running.signal(number)
        shell.record(f"cllm --conversation {name} 'Tell me.', then {number.name}", running.finish())
        shell("--show-conversation", name)


def waiting(shell: Shell) -> None:
    """A second command for the same conversation waits for the first."""
    gate = shell.provider.queue_held_reply("Once upon a time.", at=0)
    first = shell.cllm.start("--conversation", "cats", "Tell me.")
    shell.provider.wait_for(1)
    logged = ("--json-logs", "--log-file", "all.log")
    second = shell.cllm.start("--conversation", "cats", "Hello", *logged)
    second.wait_for_output("\n", stream="err")
    gate.open()
    shell.record("cllm --conversation cats 'Tell me.'", first.finish())
    shell.record("cllm --conversation cats Hello", second.finish())


def logs(shell: Shell) -> None:
    shell("-v", "Hello")
    shell("-vvv", "Hello")
    shell("-v", "--json-logs", "Hello", hides_output=True)
    logged = ("--json-logs", "--log-file", "all.log", "-vvv")
    shell("Hello", *logged, "--conversation", "cats", hides_output=True)
    shell("Hello", *logged, "-m", "openai/gpt-other", "--conversation", "cats", hides_output=True)
    shell.provider.queue_error(500)
    shell("Hello", *logged, hides_output=True)
    shell.configure(fallbacks=["openai/gpt-other"])
    shell.provider.queue_error(503)
    shell("Hello", *logged, hides_output=True)
    shell.provider.queue_reply(tool_calls=(_tool_call("call_1", "ls"),), finish="tool_calls")
    shell("Hello", *logged, "--allow-commands", hides_output=True)
    shell("Hello", "--log-file", ".")
    shell.note_files()


def looking_around(shell: Shell) -> None:
    shell("--conversation", "cats", "Hello")
    shell("doctor", hides_output=True)
    found = shell("doctor", "--json", hides_output=True).out
    shell.note_fields(found)
    findings = json.loads(found).get("findings", [])
    shell.note("checks", sorted({str(one.get("check")) for one in findings}))
    shell("models", "list")
    shell("models", "remove", "none")
    shell("models", "pull", "no such model")
    for name in ("bash", "zsh", "fish"):
        shell("completion", name, hides_output=True)


def init(shell: Shell) -> None:
    shell("init", "--list-templates")
    shell("init")
    shell("init")
    shell("init", "--force")
    shell("init", "--template", "none")
    shell("init", "--global", "--force", "--model", "openai/gpt-4o", "--system", "Be brief.")
    _note_text(shell, shell.home.work / ".cllm/Cllmfile.yml")
    _note_text(shell, shell.home.work / ".gitignore")
    _note_text(shell, shell.home.path / ".cllm/Cllmfile.yml")
    names = shell.cllm("init", "--list-templates").out.split("\n")
    for name in sorted(line.split()[0] for line in names if line.strip()):
        folder = f"of-{name}"
        shell("init", "--template", name, "--cllm-path", folder)
        _note_text(shell, shell.home.work / folder / "Cllmfile.yml")
    shell.note_files()


def _note_text(shell: Shell, path: Path) -> None:
    if path.is_file():
        shell.note(str(path), path.read_text(encoding="utf-8").splitlines())
    else:
        shell.note(str(path), ["is not there"])


SUBJECTS: tuple[Callable[[Shell], None], ...] = (
    asking,
    wrong_usage,
    errors_of_providers,
    notices,
    keys_of_providers,
    packages_with_providers,
    conversations,
    stores,
    settings_files,
    context,
    commands_of_the_model,
    schemas,
    attachments,
    chat,
    summaries,
    other_providers,
    interruptions,
    waiting,
    logs,
    looking_around,
    init,
)
