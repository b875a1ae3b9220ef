"""The client, the session and the kind of a request, in the shape of recorded requests."""

import json
from typing import Any

import pytest
from tests.client_recordings import FOLDER, MARKS, read_recording

from cllm.core.prompt import Prompt
from cllm.history.side_requests import SideRule
from cllm.server.recording.clients import ClientRequest, identify_client
from cllm.wire.anthropic.request import decode_request as decode_anthropic
from cllm.wire.openai.request import decode_request as decode_openai
from cllm.wire.responses.request import decode_request as decode_responses

TOOLS = [{"name": "Bash", "input_schema": {"type": "object"}}]
FUNCTIONS = [{"type": "function", "function": {"name": "bash"}}]
SESSION = "2789b90f-af04-46a9-942b-7c4d2879f03e"
THREAD = "01a1e15e-ecbd-79a3-a1d5-c34fe82e1447"
CHILD = "01a1e167-5666-7573-9ce5-7e4e0e39c33a"
BILLING = "x-anthropic-billing-header: cc_version=2.1.197.a13; cc_entrypoint=cli;"
CLAUDE = {"user-agent": "claude-cli/2.1.197 (external, cli)", "x-claude-code-session-id": SESSION}
OPENCODE = {"user-agent": "opencode/1.18.33 ai-sdk/provider-utils/4", "x-session-id": "ses_e1"}
QWEN = {"user-agent": "QwenCode/0.15.10 (linux; x64)"}
SDK = {"user-agent": "OpenAI/Python 2.20.0"}


def text(*blocks: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": block} for block in blocks]


def messages_prompt(*messages: Any, system: Any = None, tools: Any = TOOLS, **more: Any) -> Prompt:
    """A request to the Messages API; a string is a user message."""
    rows = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    fields = {"model": "m", "max_tokens": 9, "messages": rows, "tools": tools, **more}
    if system is not None:
        fields["system"] = system
    return decode_anthropic(json.dumps(fields).encode())


def chat_prompt(*messages: Any, system: str = "", **more: Any) -> Prompt:
    rows = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    first = [{"role": "system", "content": system}] if system else []
    return decode_openai(json.dumps({"model": "m", "messages": [*first, *rows], **more}).encode())


def responses_prompt(*items: Any, **more: Any) -> Prompt:
    rows = [{"role": "user", "content": item} if isinstance(item, str) else item for item in items]
    return decode_responses(json.dumps({"model": "m", "input": rows, **more}).encode())


def claude_user(session: str = SESSION) -> dict[str, str]:
    fields = {"device_id": "d", "account_uuid": "", "session_id": session}
    return {"user_id": json.dumps(fields)}


def codex(thread: str = THREAD, kind: str = "turn", **more: str) -> dict[str, str]:
    metadata = json.dumps({"thread_id": thread, "request_kind": kind}, separators=(",", ":"))
    headers = {
        "user-agent": "codex_exec/0.166.0 (linux)",
        "session-id": THREAD,
        "thread-id": thread,
        "x-codex-turn-metadata": metadata,
    }
    return headers | {name.replace("_", "-"): value for name, value in more.items()}


class TestClaudeCode:
    def test_a_turn_has_the_session_of_its_header(self):
        prompt = messages_prompt("work", system=text(BILLING, "You are Claude Code."))

        assert identify_client(CLAUDE, prompt) == ClientRequest(
            client="claude-code", session=f"claude-code:{SESSION}"
        )

    def test_the_session_is_in_the_metadata_too(self):
        prompt = messages_prompt("work", metadata=claude_user())

        assert identify_client({}, prompt) == ClientRequest(
            client="claude-code", session=f"claude-code:{SESSION}"
        )

    def test_older_versions_have_the_session_in_one_word(self):
        prompt = messages_prompt(
            "work", metadata={"user_id": f"user_0a1b_account__session_{SESSION}"}
        )

        assert identify_client({}, prompt).session == f"claude-code:{SESSION}"

    @pytest.mark.parametrize(
        "user_id",
        ["ann", "{", "{}", json.dumps({"session_id": SESSION}), "{" + " " * 5000, 5, None],
    )
    def test_any_other_user_id_is_no_session(self, user_id: Any):
        prompt = messages_prompt("work", metadata={"user_id": user_id})

        assert identify_client({}, prompt) == ClientRequest()

    def test_a_sub_agent_has_its_own_session_and_a_parent(self):
        headers = CLAUDE | {"x-claude-code-agent-id": "aa5df1512fe24aa26"}
        system = text(f"{BILLING} cc_is_subagent=true;", "You are an agent.")

        assert identify_client(headers, messages_prompt("count", system=system)) == ClientRequest(
            client="claude-code",
            session=f"claude-code:{SESSION}:aa5df1512fe24aa26",
            parent_session=f"claude-code:{SESSION}",
            side="subagent",
        )

    def test_a_sub_agent_without_an_id_has_no_session(self):
        system = text(f"{BILLING} cc_is_subagent=true;", "You are an agent.")

        assert identify_client(CLAUDE, messages_prompt("count", system=system)) == ClientRequest(
            client="claude-code", parent_session=f"claude-code:{SESSION}", side="subagent"
        )

    def test_a_system_prompt_that_mentions_sub_agents_is_no_sub_agent(self):
        system = text(BILLING, "Notes: " + "word " * 200 + "cc_is_subagent=true;")

        assert identify_client(CLAUDE, messages_prompt("work", system=system)).side is None

    def test_a_title_is_not_recorded(self):
        prompt = messages_prompt(
            {"role": "user", "content": text("<session>\nwork\n</session>\n\nWrite a title.")},
            tools=[],
            output_config={"format": {"type": "json_schema", "schema": {}}},
        )

        assert identify_client(CLAUDE, prompt) == ClientRequest(
            client="claude-code", session=f"claude-code:{SESSION}", side="title", is_recorded=False
        )

    def test_a_reply_in_json_is_no_title(self):
        prompt = messages_prompt(
            "list the files", tools=[], output_config={"format": {"type": "json_schema"}}
        )

        assert identify_client(CLAUDE, prompt).side is None

    def test_older_versions_have_another_request_for_titles(self):
        prompt = messages_prompt(
            "Please write a 5-10 word title for the following conversation:\n\nhi", tools=[]
        )

        request = identify_client(CLAUDE, prompt)
        assert (request.side, request.is_recorded) == ("title", False)

    def test_a_quota_check_is_not_recorded(self):
        request = identify_client(CLAUDE, messages_prompt("quota", tools=None))

        assert (request.side, request.is_recorded) == ("quota", False)

    def test_the_word_quota_in_a_turn_is_no_quota_check(self):
        assert identify_client(CLAUDE, messages_prompt("quota")).side is None
        assert identify_client(CLAUDE, messages_prompt("my quota", tools=None)).side is None

    def test_a_topic_check_is_recorded(self):
        system = "Analyze if this message indicates a new topic. Fields: 'isNewTopic' and 'title'."

        request = identify_client(CLAUDE, messages_prompt("hi", system=system, tools=[]))
        assert (request.side, request.is_recorded) == ("topic", True)

    @pytest.mark.parametrize(
        "instruction",
        [
            "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",
            "Your task is to create a detailed summary of the conversation so far, …",
        ],
    )
    def test_a_compaction_is_a_block_at_the_end_of_the_history(self, instruction: str):
        blocks = [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"},
            *text("after the interrupt\n", instruction),
        ]
        prompt = messages_prompt(
            "work",
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1"}]},
            {"role": "user", "content": blocks},
        )

        assert identify_client(CLAUDE, prompt) == ClientRequest(
            client="claude-code", session=f"claude-code:{SESSION}", side="compaction"
        )

    @pytest.mark.parametrize(
        ("instruction", "side", "is_recorded"),
        [
            ("[SUGGESTION MODE: Suggest what the user might naturally type]", "suggestion", False),
            ("The user stepped away and is coming back. Recap in 40 words.", "summary", True),
        ],
    )
    def test_a_request_with_the_history_and_all_tools_can_be_a_side_request(
        self, instruction: str, side: str, is_recorded: bool
    ):
        prompt = messages_prompt("work", {"role": "assistant", "content": "Done."}, instruction)

        request = identify_client(CLAUDE, prompt)
        assert (request.side, request.is_recorded) == (side, is_recorded)

    @pytest.mark.parametrize(
        ("prompt", "side"),
        [
            (
                messages_prompt(
                    "Perform a web search for the query: cats",
                    system=text(
                        BILLING, "You are an assistant for performing a web search tool use"
                    ),
                ),
                "web-search",
            ),
            (messages_prompt("\nWeb page content:\n---\nCats\n---", tools=[]), "web-fetch"),
            (messages_prompt("<policy_spec>\n# Command prefix", tools=[]), "command-check"),
        ],
    )
    def test_tools_that_call_the_model_send_side_requests(self, prompt: Prompt, side: str):
        assert identify_client(CLAUDE, prompt) == ClientRequest(
            client="claude-code", session=f"claude-code:{SESSION}", side=side
        )

    def test_the_words_of_these_requests_in_a_turn_change_nothing(self):
        system = text(BILLING, "You are Claude Code.")
        for words in (
            "Perform a web search for the query: x",
            "Web page content:",
            "<policy_spec>",
        ):
            assert identify_client(CLAUDE, messages_prompt(words, system=system)).side is None

    def test_the_system_message_after_the_last_user_message_is_skipped(self):
        prompt = messages_prompt(
            {"role": "user", "content": text("CRITICAL: Respond with TEXT ONLY")},
            {"role": "system", "content": "The agents are: …"},
        )

        assert identify_client(CLAUDE, prompt).side == "compaction"

    def test_the_turn_after_a_compaction_is_a_turn(self):
        prompt = messages_prompt(
            "This session is being continued from a previous conversation. Summary: …",
            {"role": "assistant", "content": "Slept."},
            "after the compact",
        )

        assert identify_client(CLAUDE, prompt).side is None


class TestCodex:
    def test_a_turn_has_the_session_of_its_thread(self):
        prompt = responses_prompt("work", prompt_cache_key="other", tools=FUNCTIONS)

        assert identify_client(codex(), prompt) == ClientRequest(
            client="codex", session=f"codex:{THREAD}"
        )

    def test_a_sub_agent_has_its_own_thread_and_a_parent(self):
        headers = codex(CHILD, x_codex_parent_thread_id=THREAD, x_openai_subagent="collab_spawn")

        assert identify_client(headers, responses_prompt("count")) == ClientRequest(
            client="codex",
            session=f"codex:{CHILD}",
            parent_session=f"codex:{THREAD}",
            side="subagent",
        )

    def test_a_review_has_no_parent(self):
        headers = codex(CHILD, x_openai_subagent="review")

        assert identify_client(headers, responses_prompt("review")) == ClientRequest(
            client="codex", session=f"codex:{CHILD}", side="subagent"
        )

    def test_a_compaction_is_in_the_metadata_of_the_turn(self):
        prompt = responses_prompt("work", {"type": "compaction_trigger"}, tools=FUNCTIONS)

        assert identify_client(codex(kind="compaction"), prompt) == ClientRequest(
            client="codex", session=f"codex:{THREAD}", side="compaction"
        )

    def test_the_compaction_of_a_sub_agent_is_a_compaction(self):
        headers = codex(CHILD, "compaction", x_codex_parent_thread_id=THREAD)

        request = identify_client(headers, responses_prompt("count"))
        assert (request.side, request.parent_session) == ("compaction", f"codex:{THREAD}")

    def test_a_compaction_without_metadata_is_recognised_by_its_text(self):
        headers = {"user-agent": "codex_cli_rs/0.50", "thread-id": THREAD}
        prompt = responses_prompt("You are performing a CONTEXT CHECKPOINT COMPACTION. …")

        assert identify_client(headers, prompt).side == "compaction"

    @pytest.mark.parametrize(
        ("kind", "side"), [("compact", "compaction"), ("memory_consolidation", "memory")]
    )
    def test_some_sub_agents_are_side_requests_of_another_kind(self, kind: str, side: str):
        headers = codex(x_openai_subagent=kind)

        assert identify_client(headers, responses_prompt("x")).side == side

    def test_a_prewarm_request_is_not_recorded(self):
        assert not identify_client(codex(kind="prewarm"), responses_prompt("x")).is_recorded

    def test_a_thread_of_another_client_is_no_session(self):
        assert identify_client({"thread-id": THREAD} | SDK, responses_prompt("x")).session is None


class TestOpencode:
    def test_a_turn_has_the_session_of_its_header(self):
        assert identify_client(OPENCODE, chat_prompt("work", tools=FUNCTIONS)) == ClientRequest(
            client="opencode", session="opencode:ses_e1"
        )

    def test_a_sub_agent_has_its_own_session_and_a_parent(self):
        headers = OPENCODE | {"x-session-id": "ses_e2", "x-parent-session-id": "ses_e1"}

        assert identify_client(headers, chat_prompt("count", tools=FUNCTIONS)) == ClientRequest(
            client="opencode",
            session="opencode:ses_e2",
            parent_session="opencode:ses_e1",
            side="subagent",
        )

    TITLE = "You are a title generator. You output ONLY a thread title. Nothing else."

    @pytest.mark.parametrize(
        "prompt",
        [
            chat_prompt("Generate a title for this conversation:\n", "work", system=TITLE),
            messages_prompt("Generate a title …", system=text(TITLE), tools=None),
            responses_prompt({"role": "system", "content": TITLE}, "Generate a title …", "work"),
            responses_prompt("Generate a title …", instructions=TITLE),
        ],
        ids=["chat", "anthropic", "responses", "instructions"],
    )
    def test_a_title_is_not_recorded_in_any_protocol(self, prompt: Prompt):
        assert identify_client(OPENCODE, prompt) == ClientRequest(
            client="opencode", session="opencode:ses_e1", side="title", is_recorded=False
        )

    def test_a_system_prompt_about_titles_with_tools_is_a_turn(self):
        prompt = chat_prompt("work", system=self.TITLE, tools=FUNCTIONS)

        assert identify_client(OPENCODE, prompt).side is None

    def test_a_compaction_is_one_message_with_the_transcript(self):
        prompt = chat_prompt("Here is the conversation so far: <conversation>…", system="Follow.")

        request = identify_client(OPENCODE, prompt)
        assert (request.side, request.is_recorded) == ("compaction", True)

    @pytest.mark.parametrize(
        ("system", "side"),
        [
            (
                "You are a helpful AI assistant tasked with summarizing conversations.",
                "compaction",
            ),
            ("Summarize what was done in this conversation. Write like …", "summary"),
        ],
    )
    def test_summaries_are_recorded(self, system: str, side: str):
        request = identify_client(OPENCODE, chat_prompt("x", system=system))

        assert (request.side, request.is_recorded) == (side, True)


class TestClientsWithoutSessions:
    def test_memory_extraction_of_qwen_code_is_a_side_request(self):
        prompt = chat_prompt(
            "work",
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": text("Managed memory directory: /home/user")},
            tools=FUNCTIONS,
        )

        assert identify_client(QWEN, prompt) == ClientRequest(client="qwen-code", side="memory")

    def test_the_later_steps_of_memory_extraction_are_side_requests(self):
        prompt = chat_prompt(
            {"role": "user", "content": text("Managed memory directory: /home/user")},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {}}]},
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
            tools=FUNCTIONS,
        )

        assert identify_client(QWEN, prompt).side == "memory"

    def test_a_compaction_of_qwen_code_is_a_side_request(self):
        prompt = chat_prompt("work", "First, reason in your scratchpad. Then, generate the …")

        assert identify_client(QWEN, prompt).side == "compaction"

    @pytest.mark.parametrize(
        "system",
        [
            "Act as an expert software developer.\nAlways use best practices when coding.",
            "Act as an expert code analyst.\nAnswer questions about the supplied code.",
        ],
    )
    def test_aider_is_recognised_by_its_system_prompt(self, system: str):
        prompt = chat_prompt("change it", system=system, stream=True)

        assert identify_client(SDK, prompt) == ClientRequest(client="aider")

    def test_a_commit_message_of_aider_is_a_side_request(self):
        system = "You are an expert software engineer that generates concise, one-line Git commit "
        prompt = chat_prompt("diff", system=f"{system}messages based on the provided diffs.")

        assert identify_client(SDK, prompt) == ClientRequest(client="aider", side="commit-message")

    def test_a_summary_of_aider_is_a_side_request(self):
        system = "*Briefly* summarize this partial conversation about programming.\nInclude …"

        assert identify_client(SDK, chat_prompt("# USER", system=system)) == ClientRequest(
            client="aider", side="summary"
        )

    def test_a_title_of_gptme_is_not_recorded(self):
        system = "Generate concise conversation titles."

        assert identify_client(SDK, chat_prompt("Create a title", system=system)) == ClientRequest(
            client="gptme", side="title", is_recorded=False
        )

    def test_gptme_and_continue_are_recognised_by_their_system_prompts(self):
        gptme = chat_prompt({"role": "user", "content": text("go")}, system="\nYou are gptme v0.35")
        continue_cli = chat_prompt("go", system="You are an agent in the Continue CLI. Given …")

        assert identify_client(SDK, gptme) == ClientRequest(client="gptme")
        assert identify_client({}, continue_cli) == ClientRequest(client="continue")

    @pytest.mark.parametrize(
        ("agent", "client"),
        [
            ("Agents/Python 0.24.0", "openai-agents"),
            ("langchain-anthropic/1.7.7", "langchain"),
            ("ai-sdk/openai/3.0.139 ai-sdk/provider-utils/4.0.65", "vercel-ai"),
            ("ai/6.0.326 ai-sdk/provider-utils/4.0.65", "vercel-ai"),
            ("OpenAI/Python 3.3.0", None),
            ("curl/8", None),
        ],
    )
    def test_other_clients_are_recognised_by_their_user_agent(self, agent, client):
        assert identify_client({"user-agent": agent}, chat_prompt("x")) == ClientRequest(
            client=client
        )

    def test_a_user_and_a_cache_key_are_no_session(self):
        prompt = chat_prompt("x", user="ann", prompt_cache_key="k")

        assert identify_client(SDK | {"x-session-id": "s"}, prompt) == ClientRequest()


class TestIdentifiers:
    @pytest.mark.parametrize(
        "value", ["", " ", "a b", "a:b", "a\tb", "ä", "x" * 129, "a\x00", "a\n"]
    )
    def test_a_header_that_is_no_id_is_ignored(self, value: str):
        claude = CLAUDE | {"x-claude-code-session-id": value, "x-claude-code-agent-id": value}
        threads = codex(value) | {"x-codex-parent-thread-id": value}
        sessions = OPENCODE | {"x-session-id": value, "x-parent-session-id": value}

        assert identify_client(claude, messages_prompt("x")) == ClientRequest(client="claude-code")
        assert identify_client(threads, responses_prompt("x")) == ClientRequest(client="codex")
        assert identify_client(sessions, chat_prompt("x")) == ClientRequest(client="opencode")

    def test_an_invalid_header_leaves_the_session_of_the_metadata(self):
        headers = CLAUDE | {"x-claude-code-session-id": "a b"}

        request = identify_client(headers, messages_prompt("x", metadata=claude_user()))
        assert request.session == f"claude-code:{SESSION}"

    def test_an_invalid_session_in_the_metadata_is_ignored(self):
        prompt = messages_prompt("x", metadata=claude_user("a:b"))

        assert identify_client({"user-agent": "claude-cli/2"}, prompt).session is None


class TestRules:
    def test_rules_of_the_settings_precede_the_default_rules(self):
        rule = SideRule(name="checks", record=False, client="qwen-code", user_contains="memory")
        prompt = chat_prompt("Managed memory directory: x")

        assert identify_client(QWEN, prompt, (rule,)) == ClientRequest(
            client="qwen-code", side="checks", is_recorded=False
        )

    @pytest.mark.parametrize(
        "rule",
        [
            SideRule(name="x", client="qwen-code"),
            SideRule(name="x", headers={"x-purpose": "nightly"}),
            SideRule(name="x", headers={"user-agent": "OpenAI", "x-purpose": "job"}),
            SideRule(name="x", no_tools=True, system_contains="Brief", user_contains="hi"),
            SideRule(name="x", response_format=True),
            SideRule(name="x", user_equals="say hi"),
            SideRule(name="x", user_starts_with="say"),
        ],
        ids=lambda rule: "-".join(n for n in rule.__struct_fields__[2:] if getattr(rule, n)),
    )
    def test_a_rule_matches_only_if_all_its_conditions_are_met(self, rule: SideRule):
        form = {"response_format": {"type": "json_object"}}
        prompt = chat_prompt("say hi\n", system="You are Brief.", **form)
        headers = SDK | {"x-purpose": "nightly job"}
        if rule.client:
            headers |= QWEN
        other = chat_prompt("other", system="You are.", tools=FUNCTIONS)

        assert identify_client(headers, prompt, (rule,)).side == "x"
        assert identify_client({}, other, (rule,)).side is None
        assert identify_client({}, chat_prompt(), (rule,)).side is None

    @pytest.mark.parametrize(
        ("prompt", "expected"),
        [
            (chat_prompt("x", response_format={"type": "json_schema"}), True),
            (chat_prompt("x", response_format={"type": "text"}), False),
            (chat_prompt("x", response_format=None), False),
            (responses_prompt("x", text={"format": {"type": "json_schema"}}), True),
            (responses_prompt("x", text={"format": {"type": "text"}, "verbosity": "low"}), False),
            (responses_prompt("x", text={"verbosity": "low"}), False),
            (messages_prompt("x", output_config={"format": {"type": "json_schema"}}), True),
            (messages_prompt("x", output_config={"effort": "high"}), False),
            (messages_prompt("x", output_format={"type": "json_schema"}), True),
        ],
    )
    def test_a_response_format_is_found_in_every_protocol(self, prompt: Prompt, expected: bool):
        rule = SideRule(name="x", response_format=True)

        assert (identify_client({}, prompt, (rule,)).side == "x") == expected

    def test_only_the_last_user_message_is_read(self):
        rule = SideRule(name="x", user_contains="needle")
        prompt = chat_prompt("needle", {"role": "assistant", "content": "needle"}, "hay")

        assert identify_client({}, prompt, (rule,)).side is None

    def test_content_that_is_not_text_is_no_text(self):
        rule = SideRule(name="x", user_contains="needle")
        image = {"type": "image_url", "image_url": {"url": "https://example.org/needle"}}

        for content in ([image], None):
            prompt = chat_prompt({"role": "user", "content": content})
            assert identify_client({}, prompt, (rule,)).side is None


EXPECTED: dict[str, tuple[set[str | None], int, dict[str, list[int]], int]] = {
    "aider-1-edit-undo": ({"aider"}, 3, {"commit-message": [2]}, 0),
    "aider-2-ask-restore": ({"aider"}, 5, {}, 0),
    "claude-code-1-tool-loop-and-continue": ({"claude-code"}, 12, {"title": [1, 8]}, 3),
    "claude-code-2-subagents-retry-cancel": (
        {"claude-code"},
        9,
        {"title": [1, 8, 12, 15], "subagent": [3, 4, 5, 6]},
        6,
    ),
    "claude-code-3-interactive-rewind-compact": (
        {"claude-code"},
        25,
        {"title": [1, 3, 5, 7, 9, 11, 19, 21, 26, 28, 30, 35, 39], "compaction": [17, 24, 32]},
        7,
    ),
    "codex-1-tools-and-resume": ({"codex"}, 16, {}, 4),
    "codex-2-compaction": ({"codex"}, 4, {"compaction": [2, 7, 9]}, 2),
    "codex-3-subagents": ({"codex"}, 3, {"subagent": [2, 4, 5, 6]}, 3),
    "continue-cli": ({"continue"}, 4, {}, 0),
    "gptme": ({"gptme"}, 7, {"title": [3, 5]}, 0),
    "langchain": ({None, "langchain"}, 12, {}, 0),
    "llm": ({None}, 6, {}, 0),
    "openai-agents": ({"openai-agents"}, 13, {}, 0),
    "opencode-1-tools-and-continue": ({"opencode"}, 12, {"title": [1, 6, 11]}, 3),
    "opencode-2-subagents-compaction": (
        {"opencode"},
        5,
        {"title": [1, 8], "subagent": [3, 4, 5, 6], "compaction": [10]},
        4,
    ),
    "opencode-3-prune-revert-fork-abort": (
        {"opencode"},
        13,
        {"title": [6], "compaction": [14]},
        3,
    ),
    "qwen-code-1-tools-continue": ({"qwen-code"}, 4, {"memory": [5]}, 0),
    "qwen-code-2-compaction": ({"qwen-code"}, 3, {"compaction": [2, 4], "memory": [6]}, 0),
    "sdk-retries": ({None, "vercel-ai"}, 12, {}, 0),
    "vercel-ai": ({"vercel-ai"}, 16, {}, 0),
}
"""Clients, number of turns, side requests by kind, and number of sessions of each recording."""


class TestRecordings:
    pytestmark = MARKS

    @pytest.mark.parametrize("name", EXPECTED)
    def test_every_request_is_classified(self, name: str):
        requests = {
            recorded.seq: identify_client(recorded.headers, recorded.decode())
            for recorded in read_recording(name)
            if recorded.body is not None
        }
        sides: dict[str, list[int]] = {}
        for seq, request in requests.items():
            if request.side is not None:
                sides.setdefault(request.side, []).append(seq)
            assert request.is_recorded == (request.side != "title")
            assert (request.parent_session is not None) == (request.side == "subagent")
        turns = len(requests) - sum(map(len, sides.values()))
        sessions = {request.session for request in requests.values()} - {None}
        clients = {request.client for request in requests.values()}

        assert (clients, turns, sides, len(sessions)) == EXPECTED[name]

    def test_no_recording_is_missing(self):
        assert {path.stem for path in FOLDER.glob("*.jsonl")} == set(EXPECTED)
