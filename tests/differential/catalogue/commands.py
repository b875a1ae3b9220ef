"""Cases of the command line: flags, settings, conversations, commands, chat and errors.

File paths are relative to the folder of the version: `home/…` and `work/…`. In arguments, variables
and files `{provider}` is the URL of the provider, `{nobody}` a URL without a listener, and `{root}`
the folder of the version.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from tests.differential.model import Answer, CommandCase, Json, Refusal, Run
from tests.fake_provider import Reply, ToolCall

STORE = "sqlite:{root}/home/cats.db"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)
PDF = b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"
LOCAL = "work/Cllmfile.yml"
HOME = "home/.cllm/Cllmfile.yml"
TRUSTED = {"CLLM_TRUST": "always"}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def run(*arguments: str, **options: Any) -> Run:
    return Run(arguments=arguments, **options)


def text(*pieces: str, **options: Any) -> tuple[Answer, ...]:
    return (Reply(pieces=pieces, **options),)


def make_command_reply(command: str, number: int = 1) -> Reply:
    """Return a reply with a call of a shell command."""
    arguments = json.dumps({"command": command, "reason": "to see"})
    call = ToolCall(id=f"call_{number}", name="execute_bash_command", arguments=arguments)
    return Reply(tool_calls=(call,), finish="tool_calls")


def settings(**keys: Any) -> str:
    return yaml.safe_dump(keys, allow_unicode=True, sort_keys=False)


def conversation_file(name: str, *messages: tuple[str, Any], **more: Any) -> Mapping[str, str]:
    """Return a conversation file as an older program wrote it."""
    encoded = [{"role": role, "content": content} for role, content in messages]
    content: Json = {
        "id": name,
        "model": "openai/gpt-test",
        "messages": encoded,
        "created_at": "2025-10-31T12:00:00Z",
        "updated_at": "2025-10-31T12:00:15Z",
        "metadata": {"total_tokens": 150},
    }
    data = json.dumps(content | more, indent=2)
    return {f"home/.cllm/conversations/{name}.json": data}


def turn_runs() -> Iterator[tuple[str, Sequence[Run]]]:
    yield (
        "prompt",
        [
            run("Hello there"),
            run("Hello", "there"),
            run(stdin=b"From standard input\n"),
            run("Both:", stdin=b"a\nb\n"),
            run(),
            run(""),
            run("Grüße 🐈", stdin="Köln\n".encode()),
            run("x", stdin=b"caf\xe9\n"),
            run("--", "-5 + 3"),
            run("-5 + 3"),
        ],
    )
    yield (
        "options",
        [
            run("-t", "0", "Hi"),
            run("--temperature", "0.7", "--max-tokens", "50", "Hi"),
            run("-t", "hot", "Hi"),
            run("--max-tokens", "-1", "Hi"),
            run("--no-stream", "Hi"),
            run("-s", "Hi"),
            run("--raw", "Hi"),
            run("--raw", "--no-stream", "Hi"),
            run("--no-such-option", "Hi"),
        ],
    )
    models = (
        "anthropic/claude-sonnet-4-5",
        "bedrock/us.anthropic.claude-3-7-sonnet-20250219-v1:0",
        "responses/gpt-5.1-codex",
        "deepseek/deepseek-reasoner",
        "vllm/llama-3",
        "nobody/model",
        "nowhere/model",
        "gpt-4o",
        "claude-sonnet-4-5",
        "novel-model",
        "nowhere/gemini-pro",
    )
    yield (
        "models",
        [
            run("-m", model, "Hi", answers=text("Hi ", "you.", reasoning=("Hm. ",)))
            for model in models
        ],
    )
    yield (
        "whole-models",
        [run("--no-stream", "-m", model, "--raw", "Hi") for model in models[:4]],
    )
    yield (
        "system",
        [
            run("--system", "Be brief.", "Hi"),
            run("--system-file", "prompt.txt", "Hi", files={"work/prompt.txt": "From a file.\n"}),
            run("--system-file", "none.txt", "Hi"),
            run("--system-file", "empty.txt", "Hi", files={"work/empty.txt": ""}),
            run("--system", "a", "--system-file", "prompt.txt", "Hi"),
            run("--system", "", "Hi"),
            run("--conversation", "dyn", "--system-policy", "dynamic", "--system", "S", "Hi"),
            run("--conversation", "dyn", "--system", "T", "Again"),
            run("--show-conversation", "dyn"),
        ],
    )
    yield (
        "signed",
        [
            run(
                "-m",
                "bedrock/us.anthropic.claude-3-7-sonnet-20250219-v1:0",
                "Hi",
                environment={
                    "AWS_BEARER_TOKEN_BEDROCK": None,
                    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
                    "AWS_SECRET_ACCESS_KEY": "secret",
                },
            ),
            run(
                "-m",
                "bedrock/us.anthropic.claude-3-7-sonnet-20250219-v1:0",
                "Hi",
                environment={"AWS_BEARER_TOKEN_BEDROCK": None},
            ),
        ],
    )
    yield (
        "replies",
        [
            run("Hi", answers=text()),
            run("Hi", answers=text("Bell \u0007 and \u001b[31mred\u001b[0m \u202e.")),
            run("Hi", answers=text("No line end")),
            run("Hi", answers=text("Line end\n")),
            run("Hi", answers=text("Cut", finish="length")),
            run("Hi", answers=text("Filtered", finish="content_filter")),
            run("Hi", answers=text("One ", "two ", "three", stop_after=2)),
            run("Hi", answers=text("One ", "two", garbage_before=1)),
            run("--no-stream", "Hi", answers=text("One", stop_after=0)),
        ],
    )


def error_runs() -> Iterator[tuple[str, Sequence[Run]]]:
    statuses = (400, 401, 403, 404, 413, 429, 500, 503, 529)
    yield (
        "errors",
        [
            run("Hi", answers=(Refusal(status=status, message="No.\nNever."),))
            for status in statuses
        ],
    )
    yield (
        "errors-kept",
        [
            run("--conversation", "c", "Hi", answers=(Refusal(status=500),)),
            run("--conversation", "c", "Hi"),
            run("--conversation", "c", "More", answers=text("One ", "two", stop_after=1)),
            run("--show-conversation", "c"),
            run("--conversation", "c", "Last"),
            run("c", "stats", "c"),
        ],
    )
    fallbacks = {"fallbacks": ["anthropic/claude-sonnet-4-5", "nobody/m"]}
    yield (
        "fallbacks",
        [
            run("Hi", files={LOCAL: settings(**fallbacks)}, answers=(Refusal(status=401),)),
            run("Hi", answers=(Refusal(status=401), Refusal(status=404))),
            run("--conversation", "f", "Hi", answers=(Refusal(status=503),)),
            run("--conversation", "f", "Again"),
        ],
    )
    yield (
        "strict",
        [
            run(
                "-t",
                "0.5",
                "-m",
                "anthropic/claude-opus-4-6",
                "Hi",
                files={LOCAL: "strict: true\n"},
            ),
            run("-m", "bedrock/claude-sonnet-4-5", "Hi", files={LOCAL: "strict: true\nseed: 5\n"}),
            run("-m", "bedrock/claude-sonnet-4-5", "Hi", files={LOCAL: "seed: 5\nstop: [X]\n"}),
        ],
    )
    yield (
        "retries",
        [
            run(
                "Hi",
                files={LOCAL: "num_retries: 1\n"},
                answers=(Refusal(status=503, headers={"Retry-After": "0"}), *text("Second.")),
            ),
            run("Hi", answers=(Refusal(status=429, headers={"Retry-After": "100"}),)),
        ],
    )


def storage_runs() -> Iterator[tuple[str, Sequence[Run]]]:
    for name, store in (("files", ()), ("sqlite", ("--store", STORE))):
        yield (
            f"conversation-{name}",
            [
                run(*store, "--list-conversations"),
                run(*store, "--conversation", "cats", "--system", "You are a cat.", "Hello"),
                run(*store, "--conversation", "cats", "And dogs?"),
                run(*store, "--conversation", "whales", "-m", "anthropic/claude-sonnet-4-5", "Hi"),
                run(*store, "--conversation", "whales", stdin=b"From a pipe"),
                run(*store, "--list-conversations"),
                run(*store, "--show-conversation", "cats"),
                run(*store, "--conversation", "cats", "--read-only", "Not kept"),
                run(*store, "--conversation", "cats", "--raw", "Not kept either"),
                run("conversations", *store, "branch", "cats", "--to", "lions", "--at", "2"),
                run("conversations", *store, "branch", "cats", "--system", "You are a dog."),
                run("c", *store, "show", "lions"),
                run("c", *store, "stats"),
                run("c", *store, "stats", "cats", "--json"),
                run("c", *store, "list"),
                run("c", *store, "delete", "whales"),
                run(*store, "--delete-conversation", "whales"),
                run("c", *store, "list"),
            ],
        )
    yield (
        "conversation-mistakes",
        [
            run("--conversation", "../../x", "Hi"),
            run("--conversation", "two words"),
            run("--conversation", "two words", "and a prompt"),
            run("--conversation", "Hi"),
            run("--conversation", "none", "--read-only", "Hi"),
            run("--read-only", "Hi"),
            run("--show-conversation", "none"),
            run("--show-conversation", "../../etc/passwd"),
            run("--delete-conversation", "none"),
            run("c", "branch", "none"),
            run("c", "show"),
            run("c", "nothing"),
            run("c", "stats", "none"),
            run("--store", "mysql://x", "--list-conversations"),
            run("--store", "sqlite:", "--list-conversations"),
            run("--store", "memory:", "--conversation", "m", "Hi"),
        ],
    )
    elsewhere = ("--conversations-path", "talk")
    yield (
        "conversation-path",
        [
            run(*elsewhere, "--conversation", "cats", "Hello"),
            run("--show-conversation", "cats", environment={"CLLM_CONVERSATIONS_PATH": "talk"}),
            run("c", *elsewhere, "list"),
        ],
    )
    yield (
        "conversation-settings",
        [
            run("--conversation", "a", "--system", "One.", "Hi"),
            run("--conversation", "a", "--system", "Two.", "Hi"),
            run("--conversation", "a", "-m", "anthropic/claude-sonnet-4-5", "Hi"),
            run("--conversation", "a", "Hi", files={LOCAL: "default_system_message: Three.\n"}),
            run("--conversation", "b", "Hi"),
            run("--show-conversation", "b"),
            run("--conversation", "c", "--no-stream", "-t", "0", "Hi"),
            run("--conversation"),
            run("--conversation", stdin=b"An automatic id"),
        ],
    )
    old = conversation_file("old", ("user", "Hello"), ("assistant", "Hi."))
    system = conversation_file("sys", ("system", "S"), ("user", "Hello"), ("assistant", "Hi."))
    empty = conversation_file("empty")
    extra = conversation_file("extra", ("user", "Hello"), ("assistant", "Hi."), colour="blue")
    broken = {
        "home/.cllm/conversations/broken.json": '{"id": "broken", "messages": [',
        "home/.cllm/conversations/list.json": "[]",
        "home/.cllm/conversations/notes.txt": "Not a conversation.",
    }
    gemini = conversation_file("gem", ("user", "Hi"), ("assistant", "Yo"), model="nowhere/pro")
    files = {**old, **system, **empty, **extra, **broken, **gemini}
    yield (
        "old-files",
        [
            run("--list-conversations", files=files),
            run("--show-conversation", "old"),
            run("--conversation", "old", "Go on"),
            run("--conversation", "sys", "Go on"),
            run("--conversation", "empty", "--system", "New.", "Go on"),
            run("--conversation", "extra", "Go on"),
            run("--conversation", "broken", "Go on"),
            run("--conversation", "gem", "Go on"),
            run("--conversation", "gem", "-m", "openai/gpt-test", "Go on"),
            run("--show-conversation", "extra"),
            run("c", "stats"),
            run("doctor"),
        ],
    )
    yield (
        "migrate",
        [
            run("c", "migrate", files={**old, **system}),
            run("c", "migrate", "--add-system-prompt", "--dry-run"),
            run(
                "c",
                "migrate",
                "--add-system-prompt",
                "--dry-run",
                files={LOCAL: "default_system_message: Be brief.\n"},
            ),
            run("c", "migrate", "--add-system-prompt"),
            run("--show-conversation", "old"),
            run("c", "migrate", "--add-system-prompt"),
        ],
    )
    for name, window in (
        ("turns", {"strategy": "turns", "max_turns": 1}),
        ("tokens", {"strategy": "blocks", "max_tokens": 60}),
        ("summary", {"strategy": "summarise", "max_tokens": 90, "summary_tokens": 30}),
    ):
        long = "Tell me more about this and that and everything else, please. " * 2
        yield (
            f"window-{name}",
            [
                run(
                    "--conversation",
                    "w",
                    f"{n}. {long}",
                    files={LOCAL: settings(window=window)},
                    answers=text("It is ", "as it is.", usage=(30 * min(n + 1, 3), 10)),
                )
                for n in range(5)
            ],
        )


def settings_runs() -> Iterator[tuple[str, Sequence[Run]]]:
    named = {"work/quick.Cllmfile.yml": "temperature: 0.25\nmodel: openai/gpt-quick\n"}
    yield (
        "layers",
        [
            run("--show-config"),
            run("--show-config", files={LOCAL: "temperature: 0.5\nmax_tokens: 7\n"}),
            run("Hi", files={"work/.cllm/Cllmfile.yml": "temperature: 0.9\ntop_p: 0.5\n"}),
            run("--config", "quick", "--show-config", files=named),
            run("--config", "quick", "Hi"),
            run("--config", "none", "Hi"),
            run("-m", "openai/gpt-explicit", "Hi", environment={"CLLM_MODEL": "openai/gpt-env"}),
            run("Hi", environment={"CLLM_MODEL": "openai/gpt-env"}),
            run(
                "--show-config", environment={"CLLM_MODEL": "openai/gpt-env", "CLLM_VERBOSITY": "1"}
            ),
            run("--cllm-path", "elsewhere", "--show-config"),
            run("--show-config", environment={"CLLM_PATH": "{root}/work/none"}),
            run("--list-models"),
            run("--version"),
        ],
    )
    bad = (
        "model: [",
        "- a\n- b\n",
        "modle: x\n",
        "max_tokens: five\n",
        "stream: perhaps\n",
        "providers: 5\n",
        "window: {strategy: none}\n",
        "timeout: soon\n",
        "budget: 5\n",
        "fallbacks: openai/x\n",
        "on_interrupt: cry\n",
        "temperature: 0\nnovel_key: {a: 1}\n",
        "api_key: ${NOT_SET}\n",
        "\u0000",
    )
    yield (
        "bad-settings",
        [run("Hi", files={LOCAL: content}, environment=TRUSTED) for content in bad],
    )
    dangerous = settings(
        context_commands=[{"name": "here", "command": "echo there"}], api_key="${SOME_TOKEN}"
    )
    yield (
        "trust",
        [
            run("Hi", files={LOCAL: dangerous}),
            run("--show-config"),
            run("trust"),
            run("Hi", environment={"SOME_TOKEN": "t-123"}),
            run("--trust", "Hi"),
            run("Hi", environment=TRUSTED),
            run("trust", "none.yml"),
            run("Hi", files={LOCAL: dangerous.replace("there", "elsewhere")}),
            run("doctor"),
        ],
    )
    yield (
        "headers",
        [
            run(
                "Hi",
                files={
                    HOME: settings(
                        model="mine/m",
                        num_retries=0,
                        providers={
                            "mine": {
                                "type": "openai",
                                "api_base": "{provider}/v1",
                                "api_key": "k",
                                "extra_headers": {"X-Extra": "yes"},
                                "models": ["bare"],
                                "timeout": {"connect": 5, "first_byte": 5, "idle": 5},
                            },
                            "claude": {
                                "type": "anthropic",
                                "api_base": "{provider}/v1",
                                "betas": ["b"],
                            },
                        },
                        extra_body_key=True,
                        stop=["X"],
                        seed=5,
                    )
                },
            ),
            run("-m", "bare", "Hi"),
            run("-m", "claude/claude-sonnet-4-5", "Hi"),
            run("--show-config"),
        ],
    )
    yield (
        "top-level-provider",
        [
            run(
                "Hi",
                files={
                    HOME: "model: openai/gpt-test\napi_base: {provider}/v1\napi_key: sk-top\n"
                    "num_retries: 0\nextra_headers: {X-Top: 'yes'}\n"
                },
            ),
            run("-m", "anthropic/claude-sonnet-4-5", "Hi", environment={"ANTHROPIC_API_KEY": None}),
            run("Hi", files={HOME: "model: openai/gpt-test\napi_base: ftp://x\n"}),
            run("Hi", files={HOME: "model: nobody\n"}),
        ],
    )


def context_runs() -> Iterator[tuple[str, Sequence[Run]]]:
    commands = [
        {"name": "static", "command": "echo one; echo two >&2"},
        {"name": "moving", "command": "echo moving", "dynamic": True},
        {"name": "silent", "command": "true"},
    ]
    yield (
        "context",
        [
            run(
                "Hi", files={HOME_CONTEXT: settings(context_commands=commands)}, environment=TRUSTED
            ),
            run("--conversation", "c", "--system", "S", "Hi", environment=TRUSTED),
            run("--conversation", "c", "Again", environment=TRUSTED),
            run("--conversation", "c", "--exec", "echo extra", "More", environment=TRUSTED),
            run("--no-context-exec", "--exec", "echo only", "Hi", environment=TRUSTED),
            run("--exec", "exit 3", "Hi", environment=TRUSTED),
            run("--show-conversation", "c", environment=TRUSTED),
        ],
    )
    for failure in ("warn", "ignore", "fail"):
        broken = [
            {"name": "fine", "command": "echo fine"},
            {"name": "bad", "command": "echo half; exit 7", "on_failure": failure},
            {"name": "late", "command": "sleep 5", "timeout": 0.2, "on_failure": failure},
        ]
        yield (
            f"context-{failure}",
            [
                run(
                    "Hi",
                    files={HOME_CONTEXT: settings(context_commands=broken)},
                    environment=TRUSTED,
                ),
                run("--conversation", "c", "Hi", environment=TRUSTED),
                run("--conversation", "c", "Again", environment=TRUSTED),
            ],
        )
    templated = settings(
        variables={"WHO": "world", "TICKET": None},
        context_commands=[{"name": "hello", "command": "echo {{ WHO | shellquote }} {{ TICKET }}"}],
    )
    yield (
        "variables",
        [
            run("Hi", files={HOME_CONTEXT: templated}, environment=TRUSTED),
            run("--var", "TICKET=5", "Hi", environment=TRUSTED),
            run("--var", "TICKET=a b; echo x", "--var", "WHO=true", "Hi", environment=TRUSTED),
            run("Hi", environment={**TRUSTED, "TICKET": "from-env"}),
            run("--var", "nonsense", "Hi", environment=TRUSTED),
            run("--var", "TICKET=1", "--show-config", environment=TRUSTED),
            run("--exec", "echo {{ WHO }}", "--var", "TICKET=1", "Hi", environment=TRUSTED),
        ],
    )


HOME_CONTEXT = "work/.cllm/Cllmfile.yml"


def model_command_runs() -> Iterator[tuple[str, Sequence[Run]]]:
    def command_replies(*commands: str) -> tuple[Answer, ...]:
        calls = [make_command_reply(command, number) for number, command in enumerate(commands, 1)]
        return (*calls, *text("Done."))

    files = {"work/a.txt": "alpha\n", "work/.env": "SECRET=1\n", "work/sub/b.txt": "beta\n"}
    yield (
        "allow-commands",
        [
            run("--allow-commands", "Look", files=files, answers=command_replies("cat a.txt")),
            run("--allow-commands", "Look", answers=command_replies("ls", "cat sub/b.txt")),
            run("--allow-commands", "Look", answers=command_replies("rm a.txt")),
            run("--allow-commands", "Look", answers=command_replies("cat a.txt; rm a.txt")),
            run("--allow-commands", "Look", answers=command_replies("cat /etc/hostname")),
            run("--allow-commands", "Look", answers=command_replies("cat .env")),
            run("--allow-commands", "Look", answers=command_replies("cat none.txt")),
            run(
                "--allow-commands",
                "--conversation",
                "k",
                "Look",
                answers=command_replies("head -1 a.txt"),
            ),
            run("--allow-commands", "--conversation", "k", "Again", answers=text("Known.")),
            run("--show-conversation", "k"),
            run("Look", answers=command_replies("cat a.txt")),
        ],
    )
    yield (
        "command-rules",
        [
            run(
                "--allow-commands",
                "--command-allow",
                "echo *",
                "Say",
                files=files,
                answers=command_replies("echo hello"),
            ),
            run(
                "--allow-commands",
                "--command-deny",
                "cat",
                "Look",
                answers=command_replies("cat a.txt"),
            ),
            run("--allow-commands", "--confirm-commands", "Look", answers=command_replies("ls")),
            run(
                "Look",
                files={
                    HOME_CONTEXT: settings(
                        allow_dynamic_commands=True,
                        dynamic_commands={
                            "available_commands": [{"command": "pwd", "description": "Where"}],
                            "deny": ["ls*"],
                            "max_commands": 2,
                            "timeout": 5,
                        },
                    )
                },
                environment=TRUSTED,
                answers=command_replies("ls"),
            ),
            run(
                "Look",
                environment=TRUSTED,
                answers=command_replies("wc -l a.txt", "wc -c a.txt", "wc a.txt"),
            ),
            run(
                "--allow-commands",
                "Look",
                environment=TRUSTED,
                answers=(
                    Reply(
                        tool_calls=(ToolCall(id="x", name="other_tool", arguments="{}"),),
                        finish="tool_calls",
                    ),
                    *text("Done."),
                ),
            ),
            run(
                "--allow-commands",
                "-m",
                "anthropic/claude-sonnet-4-5",
                "Look",
                environment=TRUSTED,
                answers=command_replies("wc -l a.txt"),
            ),
            run(
                "--allow-commands",
                "-m",
                "bedrock/claude-sonnet-4-5",
                "Look",
                environment=TRUSTED,
                answers=command_replies("wc -l a.txt"),
            ),
        ],
    )


def schema_runs() -> Iterator[tuple[str, Sequence[Run]]]:
    schema = json.dumps(SCHEMA)
    good, bad = '{"name": "Ann", "age": 5}', '{"name": "Ann", "age": "five"}'
    yield (
        "schema",
        [
            run("--json-schema", schema, "Who?", answers=text(good)),
            run("--json-schema", schema, "Who?", answers=text(bad)),
            run("--json-schema", schema, "Who?", answers=text("Ann, five.")),
            run("--json-schema", schema, "--no-stream", "Who?", answers=text(good)),
            run("--json-schema", schema, "--raw", "Who?", answers=text(good)),
            run(
                "--json-schema",
                schema,
                "-m",
                "anthropic/claude-sonnet-4-5",
                "Who?",
                answers=text(good),
            ),
            run("--json-schema", schema, "--conversation", "s", "Who?", answers=text(bad)),
            run("--json-schema", schema, "--conversation", "s", "Who?", answers=text(good)),
        ],
    )
    yield (
        "schema-files",
        [
            run("--json-schema-file", "s.json", "--validate-schema", files={"work/s.json": schema}),
            run("--json-schema-file", "s.json", "Who?", answers=text(good)),
            run("--json-schema-file", "none.json", "Who?"),
            run("--json-schema", "{", "Who?"),
            run("--json-schema", '{"type": "nonsense"}', "--validate-schema"),
            run("--json-schema", schema, "--json-schema-file", "s.json", "Who?"),
            run("--validate-schema"),
            run("--validate-schema", files={LOCAL: settings(json_schema=SCHEMA)}),
            run("--json-schema-file", "http://127.0.0.1:1/s.json", "Who?"),
            run("--clear-schema-cache", environment={"XDG_CACHE_HOME": "{root}/home/cache"}),
        ],
    )


def attachment_runs() -> Iterator[tuple[str, Sequence[Run]]]:
    files: dict[str, str | bytes] = {
        "work/dot.png": PNG,
        "work/doc.pdf": PDF,
        "work/notes.txt": "Some notes.\n",
        "work/binary.bin": b"\x00\x01\x02\xff",
        "work/empty.txt": "",
    }
    models = ("openai/gpt-test", "anthropic/claude-sonnet-4-5", "bedrock/claude-sonnet-4-5")
    yield (
        "attach",
        [
            *(
                run(
                    "-m",
                    model,
                    "-a",
                    "dot.png",
                    "-a",
                    "doc.pdf",
                    "-a",
                    "notes.txt",
                    "What?",
                    files=files,
                )
                for model in models
            ),
            run("-a", "notes.txt"),
            run("-a", "-", "What?", stdin=b"Piped text.\n"),
            run("-a", "https://example.org/cat.png", "What?"),
            run("-a", "binary.bin", "What?"),
            run("-a", "none.txt", "What?"),
            run("-a", "empty.txt", "What?"),
            run("--conversation", "a", "-a", "dot.png", "What?"),
            run("--conversation", "a", "And now?"),
            run("--show-conversation", "a"),
        ],
    )


def chat_runs() -> Iterator[tuple[str, Sequence[Run]]]:
    def chat(*lines: str, **options: Any) -> Run:
        arguments = options.pop("arguments", ())
        stdin = "".join(f"{line}\n" for line in lines).encode()
        return run("chat", *arguments, stdin=stdin, **options)

    yield (
        "chat",
        [
            chat("Hello", "How are you?", "quit"),
            chat("Hello", "/stats", "/tokens", "stats", arguments=("talk",)),
            chat("/list", "More", "/title", "/title Cats & dogs", "/title", arguments=("talk",)),
            chat("/regenerate", "/undo", "/undo 2", "/undo", "/undo", arguments=("talk",)),
            chat("/branch", "On a branch", "/branch 1", "/branch 99", arguments=("talk",)),
            run("--list-conversations"),
            run("--show-conversation", "talk"),
        ],
    )
    yield (
        "chat-commands",
        [
            chat("/help"),
            chat("/nothing", "//slash", "/?", "/h"),
            chat("/model", "/model anthropic/claude-sonnet-4-5", "Hi", "/model nowhere/x"),
            chat("/system", "/system Be brief.", "Hi", "/system Be long.", "Hi", "/system"),
            chat("/context", "/context echo here", "Hi", "/context"),
            chat("/attach", "/attach a.txt", "Hi", "/attach none", files={"work/a.txt": "alpha\n"}),
            chat("One", "Two", "/pin 1", "/pin list", "/unpin 1", "/unpin 7", "/pin", "/pin list"),
            chat("One", "Two", "/compact", "Three", "/compact undo", "/tokens"),
            chat("One", "/export out.md", "/export out.json", "/export out.md", "/export"),
            chat("One", "/save copy", "/save", "/clear", "clear", "/new", "Two"),
            chat("Needle in hay", "/search needle", "/search zzzz", "/search"),
            chat("/open none", "/open", "/open copy", "/list 1", "/list x"),
        ],
    )
    yield (
        "chat-flags",
        [
            chat("Hi", arguments=("--no-save",)),
            chat("Hi", "/save kept", arguments=("--no-save",)),
            chat("Hi", arguments=("--no-save", "id")),
            chat("Hi", arguments=("--no-stats", "--system", "Be brief.")),
            chat("1", "2", "3", "4", arguments=("--max-turns", "1", "win")),
            chat("Hi", arguments=("--model", "anthropic/claude-sonnet-4-5")),
            chat("Hi", arguments=("--store", STORE, "sql")),
            chat(
                "Hi",
                environment={"MODEL_NAME": "openai/x", "MAX_TOKENS": "9", "SHOW_STATS": "false"},
            ),
            chat("Hi", environment={"TEMPERATURE": "0.1", "MAX_CONTEXT_TURNS": "2"}),
            chat("Hi\\", "there", ""),
            chat(),
        ],
    )
    yield (
        "chat-errors",
        [
            chat("Hi", "Again", answers=(Refusal(status=500), *text("Fine."))),
            chat("Hi", answers=text("One ", "two", stop_after=1)),
            chat("Hi", arguments=("../x",)),
            chat("Hi", arguments=("--max-turns", "0")),
            chat("Hi", arguments=("--system", "a", "--system-file", "b")),
            chat("Hi", arguments=("--model", "nowhere/x")),
        ],
    )


def tool_runs() -> Iterator[tuple[str, Sequence[Run]]]:
    commands = ("", "chat", "completion", "conversations", "db", "doctor", "init", "models")
    more = ("serve", "trust", "c")
    yield "help", [run(*filter(None, (command, "--help"))) for command in (*commands, *more)]
    inner = [("conversations", "branch"), ("conversations", "migrate"), ("db", "upgrade")]
    inner += [("conversations", "stats"), ("models", "pull"), ("db", "check")]
    yield "help-inner", [run(*command, "--help") for command in inner]
    yield (
        "completion",
        [
            *(run("completion", shell) for shell in ("bash", "zsh", "fish", "tcsh")),
            run("completion"),
        ],
    )
    templates = (
        "code-review",
        "context-demo",
        "creative",
        "debug",
        "extraction",
        "summarize",
        "task-parser",
    )
    for template in templates:
        yield (
            f"init-{template}",
            [run("init", "-t", template)],
        )
    yield (
        "init",
        [
            run("init"),
            run("init"),
            run("init", "--force", "--model", "openai/x", "--temperature", "0.2"),
            run("init", "--global"),
            run("init", "--global", "--local", "-f", "--system", "S", "--max-tokens", "5"),
            run("init", "--list-templates"),
            run("init", "-t", "none"),
            run("init", "--timeout", "soon"),
            run("Hi"),
        ],
    )
    yield (
        "doctor",
        [
            run("doctor"),
            run("doctor", "--json"),
            run("doctor", "--fix", files={**conversation_file("a", ("user", "Hi"))}),
            run("doctor", files={LOCAL: "modle: x\n"}),
            run("doctor", files={LOCAL: "model: [\n"}),
            run("doctor", "--json", files={LOCAL: "model: nobody/x\n"}),
        ],
    )
    yield (
        "db",
        [
            run("db", "current", "--store", STORE),
            run("--store", STORE, "--conversation", "d", "Hi"),
            run("db", "current", "--store", STORE),
            run("db", "check", "--store", STORE),
            run("db", "upgrade", "--store", STORE),
            run("db", "downgrade", "0002", "--store", STORE),
            run("db", "current", "--store", STORE),
            run("--store", STORE, "--conversation", "d", "Hi"),
            run("db", "upgrade", "--store", STORE),
            run("--store", STORE, "--show-conversation", "d"),
            run("db", "adopt", "--store", STORE),
            run("db", "downgrade", "9999", "--store", STORE),
            run(
                "db", "check", "--store", "sqlite:{root}/work/text.db", files={"work/text.db": "no"}
            ),
            run("db", "current"),
        ],
    )
    yield (
        "serve",
        [
            run("serve", "--host", "0.0.0.0", "--port", "0"),
            run("serve", "--port", "99999"),
            run("serve", "--host", ""),
            run("serve", "--store", "mysql://x", "--port", "0"),
            run("serve", "--workers", "2", "--store", "memory:", "--port", "0"),
            run("serve", "extra"),
        ],
    )
    yield (
        "models-list",
        [run("models", "list"), run("models", "remove", "none"), run("models", "nothing")],
    )
    yield (
        "logs",
        [
            run("-v", "Hi"),
            run("-vv", "Hi"),
            run("-vvv", "--no-stream", "Hi"),
            run("--debug", "--conversation", "l", "Hi"),
            run("-v", "--json-logs", "Hi"),
            run("--log-file", "log.txt", "Hi"),
            run("-v", "Hi", answers=(Refusal(status=500),)),
        ],
    )


def command_cases() -> Iterator[CommandCase]:
    """Yield every case; each has its own home directory."""
    families = (
        turn_runs,
        error_runs,
        storage_runs,
        settings_runs,
        context_runs,
        model_command_runs,
        schema_runs,
        attachment_runs,
        chat_runs,
        tool_runs,
    )
    for family in families:
        for name, runs in family():
            yield CommandCase(id=f"command-{name}", runs=tuple(runs))
