"""Nothing that somebody else wrote reaches a terminal as a control sequence or as hidden text.

Every command runs under a pseudo-terminal with hostile text in whatever it reads: conversation
files, settings, file names, environment variables, and the provider's answers and errors.
"""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from tests.fake_provider import ToolCall
from tests.terminal_chat import CTRL_D, ENTER

# One character of each kind that must not reach a terminal, with a letter after each.
HOSTILE = (
    "a\x1b]0;pwned\x07b\x1b[2Jc\x9b31md\x08e\x7ff\rg\x85h\x0bi\u061cj\u200bk\u200el\u200fm\u2028n"
    "\u2029o\u202ap\u202eq\u2060r\u2064s\u2066t\u2069u\ufeffv\U000e0041w\U000e007fx\u3164y"
)
# The same without what a file name, an argument or YAML cannot hold.
HOSTILE_NAME = HOSTILE.replace("/", "")
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\U000e0000-\U000e007f]|(?<=[a-z])\u200b"
)
# What cllm itself writes: the end of a line on a terminal, clearing its progress line, and styles.
OWN = re.compile(r"\r+\n|\r\x1b\[K|\x1b\[[0-9;]*m")
# What a chat writes: colours, cursor movement, modes. None of them sets a title or clears all.
CHAT_OWN = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\??[0-9;]*[ABCDHJKhln]|\r|\x1b\[6n|\x08|\x1b\[\d q")
QUIET = {"TERM": "xterm-256color", "COLUMNS": "200"}


def assert_harmless(text: str, own: re.Pattern[str] = OWN) -> None:
    found = FORBIDDEN.findall(own.sub("\n", text))
    assert not found, f"{sorted(set(found))} in {text!r}"


def conversation(ref: str) -> dict[str, object]:
    """A conversation file with hostile text wherever it can hold text."""
    pdf = {"filename": f"{HOSTILE}.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}
    call = {"name": HOSTILE, "arguments": json.dumps({HOSTILE: HOSTILE})}
    return {
        "id": ref,
        "model": f"openai/{HOSTILE}",
        "messages": [
            {"role": "system", "content": HOSTILE},
            {
                "role": "user",
                "content": [{"type": "text", "text": HOSTILE}, {"type": "file", "file": pdf}],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": HOSTILE},
            {"role": "assistant", "content": HOSTILE},
        ],
        "created_at": "2025-10-31T12:00:00Z",
        "updated_at": "2025-10-31T12:00:15Z",
        "metadata": {
            "total_tokens": 150,
            HOSTILE: HOSTILE,
            "system": {"policy": "captured", "source": HOSTILE},
            "context": {
                "executed_at": "2025-10-31T12:00:00Z",
                "commands": [
                    {"name": HOSTILE, "command": HOSTILE, "state": "ok", "exit_code": 0},
                ],
            },
            "cllm": {"name": HOSTILE, "title": HOSTILE},
        },
    }


@pytest.fixture
def hostile(home, settings):
    """A home and a work folder in which every name and every value is hostile."""
    home.write_conversation("demo", conversation("demo"))
    home.write_conversation("plain", conversation("plain") | {"metadata": {}})
    home.write_conversation("broken", b"{" + HOSTILE.encode())
    (home.conversations / f"{HOSTILE_NAME}.json").write_text("{}", encoding="utf-8")
    work = home.work.parent / HOSTILE_NAME
    work.mkdir()
    home.work = work
    settings(
        default_system_message=HOSTILE,
        providers={
            "fake": {"type": "openai", "api_base": "http://127.0.0.1:9", "models": [HOSTILE]}
        },
        temprature=HOSTILE,
        variables={"NAME": HOSTILE},
        window={"strategy": "turns", "max_turns": 1},
    )
    (work / f"{HOSTILE_NAME}.Cllmfile.yml").write_text("model: openai/gpt-test\n", encoding="utf-8")
    models = home.cache / "cllm" / "models"
    models.mkdir(parents=True)
    (models / f"{HOSTILE_NAME}.gguf").write_bytes(b"GGUF")
    (work / "schema.json").write_text(
        json.dumps({"type": "object", "properties": {HOSTILE: {"type": "string"}}}),
        encoding="utf-8",
    )
    (work / "bad.json").write_text(
        json.dumps({"type": "object", "properties": {HOSTILE: {"type": HOSTILE}}}),
        encoding="utf-8",
    )
    (work / f"{HOSTILE_NAME}.txt").write_text(HOSTILE, encoding="utf-8")
    return home


@pytest.fixture
def on_terminal(cllm):
    """Runs a command to its end with a terminal for all its streams; returns what it printed."""

    def run(*arguments, env=None, typed=b""):
        result = cllm.on_terminal(*arguments, typed=typed, env={**QUIET, **(env or {})})
        assert "Traceback" not in result.out, result.report()
        return result.out

    return run


COMMANDS = [
    ("--list-conversations",),
    ("--show-conversation", "demo"),
    ("--show-conversation", "plain"),
    ("--show-conversation", "broken"),
    ("--show-conversation", HOSTILE_NAME),
    ("--delete-conversation", "demo"),
    ("--delete-conversation", HOSTILE_NAME),
    ("conversations", "list"),
    ("conversations", "show", "demo"),
    ("conversations", "stats"),
    ("conversations", "stats", "demo"),
    ("conversations", "stats", "--json", "demo"),
    ("conversations", "branch", "demo"),
    ("conversations", "branch", "demo", "--to", HOSTILE_NAME),
    ("conversations", "migrate", "--add-system-prompt", "--dry-run"),
    ("conversations", "--store", f"json:{HOSTILE_NAME}", "list"),
    ("conversations", "--store", HOSTILE_NAME, "list"),
    ("doctor",),
    ("doctor", "--json"),
    ("--show-config",),
    ("--list-models",),
    ("models", "list"),
    ("models", "remove", HOSTILE_NAME),
    ("models", "remove", f"{HOSTILE_NAME}x"),
    ("models", "pull", HOSTILE_NAME),
    ("init",),
    ("init", "--template", HOSTILE_NAME),
    ("init", "--list-templates"),
    ("init", "--cllm-path", HOSTILE_NAME),
    ("init", "--system-file", HOSTILE_NAME),
    ("trust",),
    ("trust", HOSTILE_NAME),
    ("db", "current", "--store", f"sqlite:{HOSTILE_NAME}"),
    ("db", "current", "--store", HOSTILE_NAME),
    ("db", "downgrade", HOSTILE_NAME, "--store", "sqlite:x.db"),
    ("serve", "--host", HOSTILE_NAME),
    ("serve", "--store", HOSTILE_NAME),
    ("completion", HOSTILE_NAME),
    ("--validate-schema", "--json-schema-file", "schema.json"),
    ("--validate-schema", "--json-schema-file", "bad.json"),
    ("--validate-schema", "--json-schema-file", HOSTILE_NAME),
    ("--validate-schema", "--json-schema", json.dumps({"type": HOSTILE})),
    ("-C", "nothing", "Hello"),
    ("-C", HOSTILE_NAME, "--show-config"),
    ("-m", HOSTILE_NAME, "Hello"),
    ("--var", HOSTILE_NAME, "Hello"),
    ("--attach", HOSTILE_NAME, "Hello"),
    ("--attach", f"https://{HOSTILE_NAME}", "Hello"),
    ("--system-file", HOSTILE_NAME, "Hello"),
    ("--log-file", f"{HOSTILE_NAME}/x/\0y".partition("\0")[0], "Hello"),
    ("--conversation", HOSTILE_NAME, "Hello"),
    ("--conversation", "demo", "Hello"),
    ("--read-only", "--conversation", HOSTILE_NAME, "Hello"),
    (f"--{HOSTILE_NAME}",),
    ("--temperature", HOSTILE_NAME, "Hello"),
    ("--exec", f"echo {HOSTILE_NAME!r}; exit 3", "Hello"),
    ("chat", HOSTILE_NAME),
    ("chat", "--store", HOSTILE_NAME),
]


@pytest.mark.parametrize(
    "arguments",
    COMMANDS,
    ids=lambda words: (
        " ".join(words).replace(HOSTILE_NAME, "HOSTILE")[:60].encode("ascii", "ignore").decode()
    ),
)
def test_no_command_lets_hostile_text_reach_the_terminal(arguments, hostile, on_terminal):
    own = CHAT_OWN if arguments[0] == "chat" else OWN
    assert_harmless(on_terminal(*arguments), own)


@pytest.mark.parametrize(
    ("variable", "arguments"),
    [
        ("CLLM_MODEL", ("Hello",)),
        ("CLLM_MODEL", ("doctor",)),
        ("CLLM_PATH", ("--show-config",)),
        ("CLLM_CONVERSATIONS_PATH", ("--list-conversations",)),
        ("CLLM_VERBOSITY", ("Hello",)),
        ("CLLM_LOG_FILE", ("Hello",)),
        ("CLLM_MAX_SCHEMA_SIZE", ("--validate-schema", "--json-schema", "{}")),
        ("MODEL_NAME", ("chat",)),
        ("MAX_TOKENS", ("chat",)),
        ("HTTPS_PROXY", ("doctor",)),
    ],
)
def test_no_environment_variable_reaches_the_terminal_raw(
    variable, arguments, home, settings, on_terminal
):
    if variable in ("CLLM_MODEL", "MODEL_NAME"):
        settings(model=...)
    typed = b"\x04" if arguments == ("chat",) else b""

    out = on_terminal(*arguments, env={variable: HOSTILE, "TERM": "dumb"}, typed=typed)

    assert_harmless(out)


@pytest.mark.parametrize(
    "flags", [(), ("--no-stream",), ("--raw",), ("-vvv",), ("-vv", "--json-logs")]
)
def test_an_answer_is_escaped_on_a_terminal(flags, provider, settings, on_terminal):
    provider.queue_reply(HOSTILE, reasoning=(HOSTILE,))

    out = on_terminal("Hello", *flags)

    assert_harmless(out)
    assert "pwned" in out


def test_an_escape_sequence_in_two_chunks_is_escaped(provider, settings, on_terminal):
    provider.queue_reply(*HOSTILE, "\r", "\n", "end")

    out = on_terminal("Hello")

    assert_harmless(out)
    assert r"a\x1b]0;pwned\x07b\x1b[2Jc" in out
    assert r"y" + "\r\nend" in out


def test_through_a_pipe_an_answer_is_byte_exact(provider, settings, cllm):
    provider.queue_reply(*HOSTILE)

    assert cllm("Hello").succeeded().out == f"{HOSTILE}\n"


def test_names_titles_and_errors_are_clean_through_a_pipe_too(hostile, cllm):
    listed = cllm("--list-conversations").succeeded()
    shown = cllm("--show-conversation", "demo").succeeded()
    wrong = cllm("-C", "nothing", "Hello")

    assert_harmless(listed.out + listed.err + wrong.err)
    assert_harmless(shown.out.partition("\n\n")[0])
    assert r"\u202e" in listed.out


def test_a_name_that_cannot_be_used_is_not_shown_as_one(hostile, cllm):
    shown = cllm("--show-conversation", "demo").succeeded()

    assert shown.out.startswith("Conversation: demo\n")


def test_scripts_and_emoji_that_need_invisible_characters_are_shown_as_they_are(
    provider, settings, on_terminal
):
    needed = "می‌خواهم 👩‍👩‍👧 ❤️ 1️⃣ क्‍ष ភាសា\u200bខ្មែរ"
    provider.queue_reply(needed)

    assert needed in on_terminal("Hello")


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
def test_an_error_text_of_a_provider_is_escaped(status, provider, settings, on_terminal):
    provider.queue_error(status, HOSTILE, code=HOSTILE)

    assert_harmless(on_terminal("Hello"))


def test_an_interrupted_answer_is_escaped(provider, settings, on_terminal):
    provider.queue_reply(HOSTILE, "more", stop_after=1)

    assert_harmless(on_terminal("Hello", "--conversation", "demo"))


def ask_for(provider, command: str, reason: str = "Listing.") -> None:
    """Have the model ask for a command, and then end its turn."""
    arguments = json.dumps({"command": command, "reason": reason})
    call = ToolCall(id="c1", name="execute_bash_command", arguments=arguments)
    provider.queue_reply(finish="tool_calls", tool_calls=(call,))
    provider.queue_reply("Done.")


def test_a_command_that_the_model_asks_for_is_reported_without_hiding_anything(
    provider, settings, on_terminal
):
    ask_for(provider, f"echo hello{HOSTILE}")

    out = on_terminal("Go.", "--allow-commands")

    assert_harmless(out)
    assert r"echo helloa\x1b]0;pwned\x07b\x1b[2Jc\x9b31md" in out


def test_the_question_about_a_command_shows_all_of_it_and_of_its_reason(provider, settings, cllm):
    settings(dynamic_commands={"allow": ["echo *"], "require_confirmation": True})
    ask_for(provider, "echo 'a\u202eb\u00a0c'", reason=f"{HOSTILE}\nRun it? [y/N] y")

    running = cllm.start("Go.", "--allow-commands", terminal=True, env=QUIET)
    running.wait_for_output("\nRun it? [y/N] ")
    running.type(b"n\r")
    out = running.finish().out

    assert_harmless(out)
    assert r"  echo 'a\u202eb\xa0c'" in out


@pytest.mark.parametrize("blank", ["x", " "])
def test_a_command_that_does_not_fit_on_the_screen_is_not_run(blank, provider, settings, cllm):
    settings(dynamic_commands={"allow": ["echo *"], "require_confirmation": True})
    ask_for(provider, f"echo '{blank * 3000}'; echo more")

    running = cllm.start(
        "Go.", "--allow-commands", terminal=True, env={"LINES": "24", "COLUMNS": "80"}
    )
    running.wait_for_output("Done.")

    out = running.finish().out
    assert "does not fit on this terminal" in out
    assert "[y/N]" not in out
    assert provider.requests[1].messages[-1]["content"].startswith("Refused")


def test_a_settings_file_cannot_hide_text_in_the_trust_prompt(home, settings, cllm):
    work = home.work.parent / f"{HOSTILE_NAME}\nTrust these settings?"
    work.mkdir()
    home.work = work
    content = {"context_commands": [{"name": HOSTILE, "command": f"touch pwned{HOSTILE}\ufe0f"}]}
    (work / "Cllmfile.yml").write_text(yaml.safe_dump(content), encoding="utf-8")

    running = cllm.start("Hello", terminal=True, env=QUIET)
    running.wait_for_output("\nTrust these settings? [y/N] ")
    running.type(b"n\r")
    out = running.finish().out

    assert_harmless(out)
    assert "\ufe0f" not in out
    assert not (work / "pwned").exists()


def test_settings_that_do_not_fit_on_the_screen_have_no_trust_prompt(home, settings, cllm):
    commands = [{"name": "x", "command": f"echo {number}"} for number in range(500)]
    (home.work / "Cllmfile.yml").write_text(
        yaml.safe_dump({"context_commands": commands}), encoding="utf-8"
    )

    result = cllm.start("Hello", terminal=True, env={"LINES": "24", "COLUMNS": "80"}).finish()

    assert result.code == 1
    assert "[y/N]" not in result.out
    assert "cllm trust" in result.out


def test_an_invalid_cllmfile_is_escaped_in_its_error(home, settings, on_terminal):
    quoted = json.dumps(HOSTILE)
    for text in (
        f"model: [{quoted}]",
        f"{quoted}: 1",
        f"providers: {{ {quoted}: 1 }}",
        f"window: {{strategy: {quoted}}}",
        f"variables: {{ {quoted}: null }}",
        f"context_commands: [{{name: {quoted}, command: 'exit 3', on_failure: fail}}]",
        f"context_commands: [{{name: {quoted}, command: '{{{{ nothing }}}}'}}]",
        f"json_schema: {{type: {quoted}}}",
        f"[{quoted}]",
    ):
        (home.work / "Cllmfile.yml").write_text(text, encoding="utf-8")
        assert_harmless(on_terminal("Hello", "--trust"))
        assert_harmless(on_terminal("trust"))
        assert_harmless(on_terminal("--show-config"))


def test_the_revision_of_a_database_is_escaped(home, on_terminal):
    path = home.work / "x.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES (?)", (HOSTILE,))
        database.execute("CREATE TABLE conversations (id TEXT)")
        database.execute(f'CREATE TABLE "{HOSTILE}" (id TEXT)')

    for command in ("current", "check", "adopt", "upgrade"):
        assert_harmless(on_terminal("db", command, "--store", f"sqlite:{path}"))


SHELL = {"_CLLM_COMPLETE": "bash_complete", "COMP_CWORD": "2"}


@pytest.mark.parametrize("words", ["cllm --conversation ", "cllm -m ", "cllm -c ", "cllm -m fake/"])
def test_a_shell_is_offered_no_hostile_name(words, hostile, cllm):
    for shell in ("bash", "zsh", "fish"):
        done = cllm(env={**SHELL, "_CLLM_COMPLETE": f"{shell}_complete", "COMP_WORDS": words})
        assert_harmless(done.out + done.err)


@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
def test_in_a_chat_hostile_text_is_shown_and_not_obeyed(term, hostile, provider, start_chat):
    markdown = (
        f"# {HOSTILE}\n\n- {HOSTILE}\n\n```{HOSTILE}\n{HOSTILE}\n```\n\n&#x202e;&rlm;&#27;[2J\n"
    )
    provider.queue_reply(
        markdown, f"[{HOSTILE}](https://x/{HOSTILE}) ![{HOSTILE}](x)", "&#x202e;\n\nlast"
    )
    chat = start_chat("demo", env={"TERM": term}, columns=400)
    for line in ("/list", "/search pwned", "/system", "/context", "/title", "/stats", "/pin 2"):
        chat.type(line.encode(), ENTER)
        chat.wait_for_prompt()
    chat.type(b"/new", ENTER)
    chat.wait_for_prompt()
    chat.type(b"/model openai/gpt-test", ENTER)
    chat.wait_for_prompt()
    chat.type(b"Hello", ENTER)
    chat.wait_for("last")
    chat.wait_for_prompt()
    chat.type(CTRL_D)

    result = chat.finish()

    assert_harmless(result.out, CHAT_OWN)
    assert r"\u202e" in result.out


def test_a_chat_completes_no_file_name_with_hidden_characters(hostile, start_chat):
    for name in (f"attach{HOSTILE_NAME}", "attach1", "attach2"):
        (Path(hostile.work) / f"{name}.txt").write_text("x", encoding="utf-8")
    chat = start_chat(columns=400)
    chat.type(b"/attach att", b"\t")
    chat.wait_for("attach2.txt")
    chat.type(b"\x03", CTRL_D)

    result = chat.finish()

    assert_harmless(result.out, CHAT_OWN)
    assert "attacha" not in result.out


def test_hidden_characters_that_are_pasted_into_a_chat_are_visible(settings, provider, start_chat):
    chat = start_chat()
    chat.type(b"\x1b[200~", "see \u202eexe.txt\ufeff".encode(), b"\x1b[201~")
    chat.wait_for(r"see \u202eexe.txt\ufeff")
    chat.type(ENTER)
    chat.wait_for("echo: ")
    chat.type(CTRL_D)

    assert_harmless(chat.finish().out, CHAT_OWN)
    assert provider.requests[0].message_pairs[-1][1] == "see \u202eexe.txt\ufeff"
