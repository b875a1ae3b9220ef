"""Short sessions of clients, written in the formats of the real ones.

Each has the requests in order and a table of expected results, as in
`tests/integration/clients/test_client_replays.py`.
"""

import json
from typing import Any

from tests.client_recordings import RecordedRequest

Json = dict[str, Any]
MARK = {"cache_control": {"type": "ephemeral"}}
REMINDER = "<system-reminder>\nThe date is {day}.\n</system-reminder>"
SLOW = "one two three four five six"


class ClientSession:
    """The requests of a client to one endpoint, numbered from 1."""

    def __init__(self, name: str, table: str, path: str, **fields: Any) -> None:
        self.name = name
        self.table = table
        self.requests: list[RecordedRequest] = []
        self._path = path
        self._fields = fields

    def send(
        self,
        messages: list[Json],
        answer: Json | None,
        *,
        headers: dict[str, str] | None = None,
        aborted: bool = False,
        **body: Any,
    ) -> None:
        names = {"/v1/responses": "input"}
        fields = {"model": "scripted", "stream": True, **self._fields, **body}
        fields[names.get(self._path, "messages")] = messages
        self.requests.append(
            RecordedRequest(
                seq=len(self.requests) + 1,
                scenario=self.name,
                method="POST",
                path=self._path,
                headers=headers or {},
                # The messages of later requests do not change earlier ones.
                body=json.loads(json.dumps(fields)),
                answer=answer,
                aborted=aborted,
            )
        )


def say(text: str, *calls: list[Any], think: str | None = None) -> Json:
    """The answer of the provider."""
    answer: Json = {"text": text, "calls": list(calls)}
    return answer if think is None else answer | {"think": think}


def block(text: str, *, marked: bool = False) -> Json:
    return {"type": "text", "text": text} | (MARK if marked else {})


def user(*content: Any) -> Json:
    blocks = [block(one) if isinstance(one, str) else one for one in content]
    return {"role": "user", "content": blocks}


def reply(*content: Any) -> Json:
    return user(*content) | {"role": "assistant"}


def tool_use(id_: str, name: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def tool_result(id_: str, content: Any, *, marked: bool = False) -> Json:
    fields = MARK if marked else {}
    return {"type": "tool_result", "tool_use_id": id_, "content": content} | fields


def plain(role: str, content: Any, **fields: Any) -> Json:
    return {"role": role, "content": content, **fields}


def function(id_: str, name: str, arguments: str = "{}") -> Json:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def claude_headers(session: str, agent: str | None = None) -> dict[str, str]:
    headers = {
        "user-agent": "claude-cli/2.1.197 (external, cli)",
        "x-claude-code-session-id": session,
        "x-stainless-retry-count": "0",
    }
    return headers if agent is None else headers | {"x-claude-code-agent-id": agent}


def make_claude_code() -> ClientSession:  # noqa: PLR0915 - one long session
    session = ClientSession(
        "claude-code",
        """
        1 none
        2 new a
        3-5 append a
        6 cut a
        7 branch b a
        8 side s b
        9 side t b
        10 append t
        11 append s
        12 append b
        13-14 retry b
        15 variant b
        16 side u b
        17 compaction c b
        18 append c
        19 variant c
        20 fork d b
        21 append d
        22 new e
        """,
        "/v1/messages",
        max_tokens=100,
        system=[block("x-anthropic-billing-header: cc_version=2.1.197.abc;")],
    )
    tools = [{"name": "Bash", "input_schema": {"type": "object"}}]
    main = claude_headers("11111111-1111-4111-8111-111111111111")
    hint = plain("system", "Agents: general-purpose.")
    reminder = block(REMINDER.format(day="Monday"))

    title = {"format": {"type": "json_schema", "schema": {}}}
    session.send(
        [user("<session>\nwork\n</session>")],
        say('{"title": "Work"}'),
        headers=main,
        output_config=title,
    )
    # The mark moves, and a marked block becomes a string.
    first = user(reminder, block("work", marked=True))
    session.send(
        [first, hint],
        say("I will look.\n\n", ["Bash", {"command": "ls"}], think="First I list."),
        headers=main,
        tools=tools,
    )
    first = user(reminder, block("work"))
    thinking = {"type": "thinking", "thinking": "First I list.", "signature": "c2ln"}
    call = tool_use("toolu_1", "Bash", command="ls", timeout=0)
    look = reply(thinking, "I will look.\n\n", call)
    session.send(
        [first, hint, look, user(tool_result("toolu_1", "a.txt", marked=True))],
        say(" All done. "),
        headers=main,
        tools=tools,
    )
    done = [first, hint, look, user(tool_result("toolu_1", "a.txt")), reply(" All done. ")]
    session.send([*done, user(block("more", marked=True))], say("reply 4"), headers=main)
    history = [*done, plain("user", "more"), reply("reply 4")]
    session.send(
        [*history, user(block("slow", marked=True))], say(SLOW), headers=main, aborted=True
    )
    cancelled = [plain("user", "slow"), reply("one ")]
    after = user("[Request interrupted by user]\n", block("after", marked=True))
    session.send([*history, *cancelled, after], say("reply 6"), headers=main)
    # A rewind, then two sub-agents with the same task.
    agents = [["Agent", {"prompt": "count"}], ["Agent", {"prompt": "count"}]]
    session.send(
        [*history, user(block("slow, edited", marked=True))], say("Two.", *agents), headers=main
    )
    for agent in ("agent-1", "agent-2"):
        session.send(
            [user(reminder, block("count", marked=True))],
            say("", ["Bash", {"command": "ls | wc -l"}]),
            headers=claude_headers(main["x-claude-code-session-id"], agent),
        )
    for agent, id_ in (("agent-2", "toolu_4"), ("agent-1", "toolu_3")):
        counted = reply(tool_use(id_, "Bash", command="ls | wc -l"))
        session.send(
            [user(reminder, "count"), counted, user(tool_result(id_, "1"))],
            say("One file."),
            headers=claude_headers(main["x-claude-code-session-id"], agent),
        )
    spawn = reply("Two.", tool_use("toolu_2", "Agent"), tool_use("toolu_5", "Agent"))
    results = user(tool_result("toolu_5", "One file."), tool_result("toolu_2", "One file."))
    history += [plain("user", "slow, edited"), spawn]
    session.send([*history, results], None, headers=main)
    # The provider is overloaded; the last try is not streamed.
    session.send([*history, results], None, headers=main)
    session.send([*history, results], say("Both have one file."), headers=main, stream=False)
    history += [results, reply("Both have one file.")]
    interrupted = user(
        tool_result("toolu_5", "One file."), tool_result("toolu_2", "x"), "stop, why?"
    )
    session.send([*history[:-2], interrupted], say("Because."), headers=main)
    # A compaction leaves out the last reply.
    order = "CRITICAL: Respond with TEXT ONLY. Summarise."
    changed = user(*interrupted["content"], order)
    summary = "1. The user wants to count files.\n2. There is one file."
    session.send(
        [*history[:-2], changed],
        say(f"<analysis>\nI think.\n</analysis>\n\n<summary>\n{summary}\n</summary>\n"),
        headers=main,
        tools=tools,
    )
    continued = user(
        block(REMINDER.format(day="Tuesday")),
        "This session is being continued from a previous conversation.\n\n"
        f"Summary:\n{summary}\n\nRead the transcript for details.",
    )
    command = user("<command-name>/compact</command-name>\n", block("after it", marked=True))
    kept = [continued, reply("Because.")]
    session.send([*kept, command], say("reply 17"), headers=main)
    kept += [user("<command-name>/compact</command-name>\n", "after it"), reply("reply 17")]
    session.send([*kept, user("last")], say("reply 18"), headers=main)
    session.send([*kept, user("last, edited")], say("reply 19"), headers=main)
    # --fork-session before the compaction.
    fork = claude_headers("22222222-2222-4222-8222-222222222222")
    branched = [*history[:-2], interrupted, reply("Because.")]
    session.send([*branched, user("in the fork")], say("reply 20"), headers=fork)
    branched += [user("in the fork"), reply("reply 20")]
    session.send([*branched, user("more of it")], say("reply 21"), headers=fork)
    other = claude_headers("33333333-3333-4333-8333-333333333333")
    session.send([first, hint], say("Another session."), headers=other, tools=tools)
    return session


def item(role: str, text: str, id_: str | None = None) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    fields = {} if id_ is None else {"id": id_}
    content = [{"type": kind, "text": text}]
    return {"type": "message", "role": role, "content": content, **fields}


def codex_headers(thread: str, *, kind: str = "turn", parent: str | None = None) -> dict[str, str]:
    headers = {
        "user-agent": "codex_exec/0.166.0 (linux)",
        "session-id": parent or thread,
        "thread-id": thread,
        "x-codex-turn-metadata": json.dumps({"request_kind": kind}, separators=(",", ":")),
    }
    if parent is None:
        return headers
    return headers | {"x-codex-parent-thread-id": parent, "x-openai-subagent": "collab_spawn"}


def make_codex() -> ClientSession:
    session = ClientSession(
        "codex",
        """
        1 new a
        2 append a
        3 append a
        4 variant a
        5 side s a
        6 compaction b a
        7 append b
        8 side t b
        9 append t
        10 append b
        11 new c
        12 retry c
        """,
        "/v1/responses",
        store=False,
        prompt_cache_key="one-key",
    )
    main = codex_headers("thread-1")
    start = [
        item("developer", "You are Codex.", "msg_dev"),
        item("user", "<environment_context>\n<cwd>/project</cwd>\n</environment_context>"),
        item("user", "go"),
    ]
    session.send(
        start,
        say("I will look.\n\n", ["exec_command", {"cmd": "ls"}], think="Look."),
        headers=main,
    )
    steps = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"}
        | {"content": None},
        item("assistant", "I will look.\n\n", "msg_1"),
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "exec_command"}
        | {"arguments": '{"cmd":"ls"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "a.txt\n"},
    ]
    patch = ["apply_patch", "*** Begin Patch\n*** End Patch\n"]
    session.send([*start, *steps], say("Editing.", patch), headers=main)
    steps += [
        item("assistant", "Editing.", "msg_2"),
        {"type": "custom_tool_call", "call_id": "call_2", "name": "apply_patch", "input": patch[1]},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "Done"},
    ]
    session.send([*start, *steps], say(SLOW), headers=main, aborted=True)
    # Killed: the client has no reply.
    session.send([*start, *steps, item("user", "what happened")], say("reply 4"), headers=main)
    steps += [item("user", "what happened"), item("assistant", "reply 4")]
    order = item("user", "You are performing a CONTEXT CHECKPOINT COMPACTION. Summarise.")
    compaction = codex_headers("thread-1", kind="compaction")
    session.send([*start, *steps, order], say("A file was edited."), headers=compaction, tools=[])
    # The user messages stay.
    kept = [
        *start,
        item("user", "what happened"),
        item("user", "Another language model started to solve this.\nA file was edited."),
    ]
    session.send(kept, say("reply 6"), headers=main)
    kept += [item("assistant", "reply 6"), item("user", "next")]
    session.send(kept, say("A helper.", ["spawn_agent", {"message": "count"}]), headers=main)
    agent = codex_headers("thread-2", parent="thread-1")
    task = [*start[:2], item("user", "count")]
    session.send(task, say("", ["exec_command", {"cmd": "ls"}]), headers=agent)
    task += [
        {"type": "function_call", "call_id": "call_9", "name": "exec_command", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_9", "output": "1"},
    ]
    session.send(task, say("One."), headers=agent)
    kept += [
        item("assistant", "A helper."),
        {"type": "function_call", "call_id": "call_8", "name": "spawn_agent", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_8", "output": "{}"},
        item("user", "<subagent_notification>\nOne.\n</subagent_notification>"),
    ]
    session.send(kept, say("It answered."), headers=main)
    other = codex_headers("thread-3")
    session.send(start, None, headers=other)
    session.send(start, say("After failure."), headers=other)
    return session


def opencode_headers(session: str, parent: str | None = None) -> dict[str, str]:
    headers = {
        "user-agent": "opencode/1.18.33",
        "x-session-id": session,
        "x-session-affinity": session,
    }
    return headers if parent is None else headers | {"x-parent-session-id": parent}


def make_opencode() -> ClientSession:
    session = ClientSession(
        "opencode",
        """
        1 none
        2 new a
        3-5 append a
        6 branch b a
        7 fork c b
        8 append b
        9 cut b
        10 side s b
        11 compaction d b
        12 append d
        13 side t d
        14 append t
        """,
        "/v1/chat/completions",
    )
    main = opencode_headers("ses_1")
    system = plain("system", "You are opencode.")
    title = plain("system", "You are a title generator. You output ONLY a thread title.")
    ask = plain("user", "Generate a title for this conversation:\n")
    session.send([title, ask, plain("user", '"go"')], say("Going"), headers=main)
    tools = [{"type": "function", "function": {"name": "bash"}}]
    first = [system, plain("user", '"go"')]
    session.send(
        first, say("I will look.\n\n", ["bash", {"command": "ls"}]), headers=main, tools=tools
    )
    arguments = '{"command":"ls"}'
    look = plain("assistant", "I will look.\n\n", tool_calls=[function("c1", "bash", arguments)])
    output = plain("tool", "a.txt\n" * 20, tool_call_id="c1")
    session.send([*first, look, output], say("Done."), headers=main, tools=tools)
    history = [*first, look, output, plain("assistant", "Done.")]
    session.send([*history, plain("user", "two")], say("reply 4"), headers=main, tools=tools)
    # An old result is cleared.
    history[3] = plain("tool", "[Old tool result content cleared]", tool_call_id="c1")
    two = [*history, plain("user", "two"), plain("assistant", "reply 4")]
    session.send([*two, plain("user", "three")], say("reply 5"), headers=main, tools=tools)
    # A revert of two messages.
    edited = [*history, plain("user", "two, edited")]
    session.send(edited, say("reply 6"), headers=main, tools=tools)
    edited.append(plain("assistant", "reply 6"))
    fork = opencode_headers("ses_2")
    session.send([*edited, plain("user", "in the fork")], say("reply 7"), headers=fork, tools=tools)
    edited.append(plain("user", "slow"))
    session.send(edited, say(SLOW), headers=main, tools=tools, aborted=True)
    edited += [plain("assistant", "one two "), plain("user", "after")]
    session.send(edited, say("reply 9"), headers=main, tools=tools)
    transcript = plain("user", "Here is the conversation so far: go, two, slow, after")
    order = plain("system", "You are a context summarization agent.")
    session.send([order, transcript], say("We looked at a file."), headers=main)
    compacted = [
        system,
        plain("user", "What did we do so far?"),
        plain("assistant", "We looked at a file."),
        plain("user", "next"),
    ]
    session.send(compacted, say("reply 11"), headers=main, tools=tools)
    compacted += [plain("assistant", "reply 11"), plain("user", "again")]
    session.send(compacted, say("reply 12"), headers=main, tools=tools)
    agent = opencode_headers("ses_3", parent="ses_1")
    task = [system, plain("user", "count")]
    session.send(task, say("", ["bash", {"command": "ls"}]), headers=agent, tools=tools)
    task.append(plain("assistant", "", tool_calls=[function("c9", "bash")]))
    task.append(plain("tool", "1", tool_call_id="c9"))
    session.send(task, say("One."), headers=agent, tools=tools)
    return session


def make_aider() -> ClientSession:
    session = ClientSession(
        "aider",
        """
        1 new a
        2 side s
        3-5 append a
        6 variant a
        7 new b
        """,
        "/v1/chat/completions",
    )
    system = plain("system", "Act as an expert software developer.\nAlways use best practices.")
    last = plain("system", "# *SEARCH/REPLACE block* Rules:")
    repo = [
        plain("user", "Here are summaries of some files present in my git repository.\nb.txt"),
        plain("assistant", "Ok, I won't try and edit those files without asking first."),
    ]

    def files(content: str) -> list[Json]:
        text = f"I have *added these files to the chat* so you can go ahead.\n{content}"
        return [
            plain("user", text),
            plain("assistant", "Ok, any changes I propose will be to those files."),
        ]

    session.send([system, *repo, *files("beta"), plain("user", "edit"), last], say("Here.\n\n"))
    commit = "You are an expert software engineer that generates concise, one-line Git commit"
    session.send(
        [plain("system", f"{commit} messages."), plain("user", "diff --git a.txt")],
        say("fix: beta"),
        stream=False,
    )
    # The files move behind the history and have other contents; a commit is added.
    done = [plain("user", "edit"), plain("assistant", "Here.")]
    committed = [
        plain("user", "I committed the changes with git hash 0a1b2c & commit msg: fix"),
        plain("assistant", "Ok."),
    ]
    done += committed
    session.send(
        [system, *repo, *done, *files("gamma"), plain("user", "second"), last], say("reply 3")
    )
    later = [plain("user", "second"), plain("assistant", "reply 3")]
    session.send(
        [system, *repo, *done, *files("beta"), *later, plain("user", "third"), last], say("reply 4")
    )
    # Restored from a file, without the repository and the commit.
    restored = [
        plain("user", "edit  \n"),
        plain("assistant", "\nHere.\n\n"),
        plain("user", "second  \n"),
        plain("assistant", "\nreply 3\n\n"),
        plain("user", "third  \n"),
        plain("assistant", "\nreply 4\n\n"),
    ]
    session.send([system, *restored, *files("beta"), plain("user", "fourth"), last], say("reply 5"))
    session.send(
        [system, *restored, *files("beta"), plain("user", "fourth, edited"), last], say("reply 6")
    )
    session.send([system, *repo, *files("beta"), plain("user", "edit"), last], say("Again."))
    return session


def make_qwen_code() -> ClientSession:
    session = ClientSession(
        "qwen-code",
        """
        1 new a
        2-3 append a
        4 side s a
        5 append a
        6 side t a
        7 compaction b a
        8 side u b
        9 append b
        10 new c
        11 retry c
        """,
        "/v1/chat/completions",
    )
    headers = {"user-agent": "QwenCode/0.15.10 (linux; x64)"}
    system = plain("system", "You are Qwen Code, an interactive CLI agent.")
    tools = [{"type": "function", "function": {"name": "run_shell_command"}}]

    def environment(day: str) -> list[Json]:
        text = "This is the Qwen Code. We are setting up the context for our chat.\nToday's date is"
        return [
            plain("user", [block(f"{text} {day}")]),
            plain("assistant", "Got it. Thanks for the context!"),
        ]

    ask = plain("user", [block("work")])
    start = [system, *environment("Monday"), ask]
    session.send(
        start,
        say("I will look.\n\n", ["run_shell_command", {"command": "ls"}], think="Look."),
        headers=headers,
        tools=tools,
    )
    look = plain(
        "assistant",
        "I will look.\n\n",
        tool_calls=[function("c1", "run_shell_command")],
        reasoning_content="Look.",
    )
    output = plain("tool", [block("a.txt")], tool_call_id="c1")
    session.send([*start, look, output], say(" All done. "), headers=headers, tools=tools)
    # The next day the environment is another one, and texts are trimmed.
    trimmed = look | {"content": "I will look."}
    history = [system, *environment("Tuesday"), ask, trimmed, output]
    history += [plain("assistant", "All done."), plain("user", [block("more")])]
    session.send(history, say("reply 3"), headers=headers, tools=tools)
    history.append(plain("assistant", "reply 3"))
    memory = plain("user", [block("Managed memory directory: /home/user/.qwen")])
    agent = plain("system", "You are now acting as the managed memory extraction subagent.")
    session.send([agent, *history[1:], memory], say("Nothing."), headers=headers, tools=tools)
    history.append(plain("user", [block("last")]))
    session.send(history, say("reply 5"), headers=headers, tools=tools)
    history.append(plain("assistant", "reply 5"))
    order = plain("user", [block("First, reason in your scratchpad. Then, generate it.")])
    summary = "<state_snapshot>\n<overall_goal>say hello to all</overall_goal>\n</state_snapshot>\n"
    snapshots = plain("system", "You are the component that summarizes internal chat history.")
    session.send([snapshots, *history[1:], order], say(summary), headers=headers, stream=False)
    compacted = [
        system,
        plain("user", [block(summary)]),
        plain("assistant", "Got it. Thanks for the additional context!"),
        plain("user", [block("after")]),
    ]
    session.send(compacted, say("reply 7"), headers=headers, tools=tools)
    compacted.append(plain("assistant", "reply 7"))
    session.send([agent, *compacted[1:], memory], say("Nothing."), headers=headers, tools=tools)
    compacted.append(plain("user", [block("and more")]))
    session.send(compacted, say("reply 9"), headers=headers, tools=tools)
    # Another session with the same first message; its first request fails.
    session.send(start, None, headers=headers, tools=tools)
    session.send(start, say("Another session."), headers=headers, tools=tools)
    return session


def make_llm() -> ClientSession:
    session = ClientSession(
        "llm",
        """
        1 new a
        2 append a
        3 new b
        4-5 append b
        6 new c
        7 append c
        8 append a
        9 variant a
        """,
        "/v1/chat/completions",
    )
    system = plain("system", "You are brief")
    first = [system, plain("user", "hi")]
    session.send(first, say("Hello."))
    two = [*first, plain("assistant", "Hello."), plain("user", "second")]
    session.send(two, say("reply 2"))
    start = [plain("user", "add")]
    session.send(start, say("I will add.\n\n", ["add", {"a": 1}], think="Look."))
    add = plain("assistant", "I will add.\n\n", tool_calls=[function("c1", "add", '{"a": 1}')])
    start += [add, plain("tool", "3", tool_call_id="c1")]
    session.send(start, say(" All done. "))
    session.send([*start, plain("assistant", " All done. "), plain("user", "more")], say("reply 5"))
    # The same first message, but another reply.
    session.send(first, say("Good day."))
    session.send([*first, plain("assistant", "Good day."), plain("user", "second")], say("reply 7"))
    three = [*two, plain("assistant", "reply 2"), plain("user", "third")]
    session.send(three, say("reply 8"))
    session.send([*three[:-1], plain("user", "third, edited")], say("reply 9"))
    return session


SESSIONS = {
    session.name: session
    for session in (
        make_claude_code(),
        make_codex(),
        make_opencode(),
        make_aider(),
        make_qwen_code(),
        make_llm(),
    )
}
