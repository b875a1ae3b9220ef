"""The side requests of known clients.

Rules marked with a comment are from the source code or the documentation of a client; the others
are from recorded requests.
"""

from cllm.history.side_requests import SideRule

CLAUDE_CODE = "claude-code"
CODEX = "codex"
OPENCODE = "opencode"
QWEN_CODE = "qwen-code"
AIDER = "aider"
GPTME = "gptme"

TURN_METADATA = "x-codex-turn-metadata"
SUBAGENT_KIND = "x-openai-subagent"

DEFAULT_RULES: tuple[SideRule, ...] = (
    SideRule(
        name="title",
        record=False,
        client=CLAUDE_CODE,
        no_tools=True,
        response_format=True,
        user_starts_with="<session>",
    ),
    # Versions 1.
    SideRule(
        name="title",
        record=False,
        client=CLAUDE_CODE,
        no_tools=True,
        user_starts_with="Please write a 5-10 word title for the following conversation",
    ),
    # With an account of Anthropic.
    SideRule(name="quota", record=False, client=CLAUDE_CODE, no_tools=True, user_equals="quota"),
    # Versions 1.
    SideRule(name="topic", client=CLAUDE_CODE, no_tools=True, system_contains="isNewTopic"),
    SideRule(
        name="compaction",
        client=CLAUDE_CODE,
        user_starts_with="CRITICAL: Respond with TEXT ONLY",
    ),
    # Versions 1.
    SideRule(
        name="compaction",
        client=CLAUDE_CODE,
        user_starts_with="Your task is to create a detailed summary of the conversation so far",
    ),
    # These two have the whole history and all tools.
    SideRule(
        name="suggestion",
        record=False,
        client=CLAUDE_CODE,
        user_starts_with="[SUGGESTION MODE: Suggest what the user might",
    ),
    SideRule(
        name="summary",
        client=CLAUDE_CODE,
        user_starts_with="The user stepped away and is coming back",
    ),
    # The tools WebSearch, WebFetch and Bash call the model.
    SideRule(
        name="web-search",
        client=CLAUDE_CODE,
        user_starts_with="Perform a web search for the query:",
        system_contains="You are an assistant for performing a web search tool use",
    ),
    SideRule(
        name="web-fetch",
        client=CLAUDE_CODE,
        no_tools=True,
        user_starts_with="Web page content:",
    ),
    SideRule(
        name="command-check",
        client=CLAUDE_CODE,
        no_tools=True,
        user_starts_with="<policy_spec>",
    ),
    SideRule(
        name="compaction", client=CODEX, headers={TURN_METADATA: '"request_kind":"compaction"'}
    ),
    # Without the header of the turn.
    SideRule(
        name="compaction",
        client=CODEX,
        no_tools=True,
        user_starts_with="You are performing a CONTEXT CHECKPOINT COMPACTION",
    ),
    SideRule(
        name="prewarm",
        record=False,
        client=CODEX,
        headers={TURN_METADATA: '"request_kind":"prewarm"'},
    ),
    # The kinds of sub-agents in Codex's source code.
    SideRule(name="compaction", client=CODEX, headers={SUBAGENT_KIND: "compact"}),
    SideRule(name="memory", client=CODEX, headers={SUBAGENT_KIND: "memory_consolidation"}),
    SideRule(
        name="title",
        record=False,
        client=OPENCODE,
        no_tools=True,
        system_contains="You are a title generator",
    ),
    SideRule(
        name="compaction",
        client=OPENCODE,
        no_tools=True,
        user_starts_with="Here is the conversation so far:",
    ),
    # Older versions.
    SideRule(
        name="compaction",
        client=OPENCODE,
        no_tools=True,
        system_contains="You are a helpful AI assistant tasked with summarizing conversations",
    ),
    # The summary of a session.
    SideRule(
        name="summary",
        client=OPENCODE,
        no_tools=True,
        system_contains="Summarize what was done in this conversation",
    ),
    SideRule(name="memory", client=QWEN_CODE, user_starts_with="Managed memory directory:"),
    SideRule(
        name="compaction",
        client=QWEN_CODE,
        no_tools=True,
        user_starts_with="First, reason in your scratchpad",
    ),
    SideRule(
        name="commit-message",
        client=AIDER,
        no_tools=True,
        system_contains="one-line Git commit messages",
    ),
    # Not in the recordings: a long chat.
    SideRule(
        name="summary",
        client=AIDER,
        no_tools=True,
        system_contains="summarize this partial conversation about programming",
    ),
    SideRule(
        name="title",
        record=False,
        client=GPTME,
        no_tools=True,
        system_contains="Generate concise conversation titles",
    ),
)
