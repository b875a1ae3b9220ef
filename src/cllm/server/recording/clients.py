"""Identifies the client of a request, its session, and whether it is a side request.

Reads the headers, the parameters, the system prompt and the last user message, never the whole
history. Nothing here decides what is sent.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import msgspec

from cllm.core.message import Message
from cllm.core.prompt import Prompt
from cllm.history.side_requests import SideRule
from cllm.server.recording.side_rules import (
    AIDER,
    CLAUDE_CODE,
    CODEX,
    DEFAULT_RULES,
    GPTME,
    OPENCODE,
    QWEN_CODE,
    SUBAGENT_KIND,
    TURN_METADATA,
)

SUBAGENT = "subagent"

CLAUDE_SESSION = "x-claude-code-session-id"
CLAUDE_AGENT = "x-claude-code-agent-id"
CODEX_THREAD = "thread-id"
CODEX_PARENT = "x-codex-parent-thread-id"
OPENCODE_SESSION = "x-session-id"
OPENCODE_PARENT = "x-parent-session-id"

USER_AGENTS = (
    ("claude-cli/", CLAUDE_CODE),
    ("codex", CODEX),
    ("opencode/", OPENCODE),
    ("qwencode/", QWEN_CODE),
    ("agents/", "openai-agents"),
    ("langchain", "langchain"),
    ("ai-sdk/", "vercel-ai"),
    ("ai/", "vercel-ai"),
)
"""Lower-case starts of User-Agent headers."""
OWN_HEADERS = ((CLAUDE_SESSION, CLAUDE_CODE), (TURN_METADATA, CODEX))
SYSTEM_PROMPTS = (
    ("You are an agent in the Continue CLI", "continue"),
    ("You are gptme", GPTME),
    ("Generate concise conversation titles", GPTME),
    ("Act as an expert software developer.\nAlways use best practices", AIDER),
    ("Act as an expert code analyst.\nAnswer questions about the supplied code", AIDER),
    ("Act as an expert architect engineer and provide direction to your editor", AIDER),
    ("You are an expert software engineer that generates concise, one-line Git commit", AIDER),
    ("*Briefly* summarize this partial conversation about programming", AIDER),
)
"""Starts of the system prompts of clients that send no header of their own."""

# No colon: it separates the parts of a key.
ID = re.compile(r"[!-9;-~]{1,128}", re.ASCII)
OLD_CLAUDE_USER = re.compile(r"user_[0-9a-f]*_account_[0-9a-f-]*_session_([0-9a-f-]{36})", re.ASCII)
CLAUDE_SUBAGENT = b"cc_is_subagent=true"
CLAUDE_HEADER_BYTES = 512
MAX_USER_ID_LENGTH = 4096
MAX_LEADING_MESSAGES = 4


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The client of a request, its session, and the kind of the request.

    `session` and `parent_session` are family keys of conversations: the client and the ID of its
    session. `parent_session` is the session that started a sub-agent. `side` is the kind of a side
    request, None for a turn of a conversation.
    """

    client: str | None = None
    session: str | None = None
    parent_session: str | None = None
    side: str | None = None
    is_recorded: bool = True


class _Session(msgspec.Struct, frozen=True, kw_only=True):
    key: str | None = None
    parent: str | None = None
    is_subagent: bool = False


NO_SESSION = _Session()


def identify_client(
    headers: Mapping[str, str], prompt: Prompt, rules: Sequence[SideRule] = ()
) -> ClientRequest:
    """Identify the client of a request; `headers` have lower-case names.

    `rules` precede the default rules. The first rule that matches decides.
    """
    view = _RequestView(headers, prompt)
    client = _find_client(view)
    read_session = SESSION_READERS.get(client or "")
    session = NO_SESSION if read_session is None else read_session(view)
    matches = (rule for rule in chain(rules, DEFAULT_RULES) if _matches(rule, client, view))
    rule = next(matches, None)
    side = SUBAGENT if session.is_subagent else None
    return ClientRequest(
        client=client,
        session=session.key,
        parent_session=session.parent,
        side=side if rule is None else rule.name,
        is_recorded=rule is None or rule.record,
    )


class _RequestView:
    """The parts of a request that identify it; each text is decoded at most once."""

    def __init__(self, headers: Mapping[str, str], prompt: Prompt) -> None:
        self.headers = headers
        self.prompt = prompt

    def read_id(self, name: str) -> str | None:
        return _check_id(self.headers.get(name))

    @property
    def has_tools(self) -> bool:
        parameters = self.prompt.parameters
        return bool(parameters.get("tools") or parameters.get("functions"))

    @property
    def has_response_format(self) -> bool:
        """Whether the reply has to be JSON, in the parameters of any protocol."""
        parameters = self.prompt.parameters
        formats = (
            parameters.get("response_format"),
            parameters.get("output_format"),
            _get_field(parameters.get("text"), "format"),
            _get_field(parameters.get("output_config"), "format"),
        )
        return any(form and _get_field(form, "type") != "text" for form in formats)

    @cached_property
    def system_text(self) -> str:
        """The system prompt, and the system messages among the first messages."""
        leading = self.prompt.messages[:MAX_LEADING_MESSAGES]
        messages = [message for message in leading if message.role == "system"]
        if self.prompt.system is not None:
            messages.insert(0, self.prompt.system)
        return "\n".join(text for message in messages for text in _decode_texts(message)).lstrip()

    @cached_property
    def user_texts(self) -> tuple[str, ...]:
        """The text blocks of the last user message."""
        for message in reversed(self.prompt.messages):
            if message.role == "user":
                return tuple(text.strip() for text in _decode_texts(message))
        return ()


class _TextBlock(msgspec.Struct):
    text: str | None = None


class _TextContent(msgspec.Struct):
    content: str | list[_TextBlock] | None = None


_text_decoder = msgspec.json.Decoder(_TextContent)


def _decode_texts(message: Message) -> Iterator[str]:
    try:
        content = _text_decoder.decode(message.raw).content
    except (msgspec.MsgspecError, RecursionError):
        return
    if isinstance(content, str):
        yield content
    elif content is not None:
        yield from (block.text for block in content if block.text is not None)


def _get_field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _check_id(value: Any) -> str | None:
    return value if isinstance(value, str) and ID.fullmatch(value) else None


def _find_client(view: _RequestView) -> str | None:
    agent = view.headers.get("user-agent", "").lower()
    for start, client in USER_AGENTS:
        if agent.startswith(start):
            return client
    for name, client in OWN_HEADERS:
        if name in view.headers:
            return client
    if _read_claude_user(view.prompt) is not None:
        return CLAUDE_CODE
    for start, client in SYSTEM_PROMPTS:
        if view.system_text.startswith(start):
            return client
    return None


def _read_claude_user(prompt: Prompt) -> str | None:
    """Return the session ID in `metadata.user_id` of Claude Code: a JSON text, or in one word."""
    user_id = _get_field(prompt.parameters.get("metadata"), "user_id")
    if not isinstance(user_id, str) or len(user_id) > MAX_USER_ID_LENGTH:
        return None
    if old := OLD_CLAUDE_USER.fullmatch(user_id):
        return old[1]
    if not user_id.startswith("{"):
        return None
    try:
        fields = msgspec.json.decode(user_id)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return _check_id(fields.get("session_id")) if "account_uuid" in fields else None


def _read_claude_session(view: _RequestView) -> _Session:
    session = view.read_id(CLAUDE_SESSION) or _read_claude_user(view.prompt)
    main = None if session is None else f"{CLAUDE_CODE}:{session}"
    agent = view.read_id(CLAUDE_AGENT)
    if agent is None and not _is_claude_subagent(view.prompt.system):
        return _Session(key=main)
    has_key = main is not None and agent is not None
    return _Session(key=f"{main}:{agent}" if has_key else None, parent=main, is_subagent=True)


def _is_claude_subagent(system: Message | None) -> bool:
    """Whether the first block of the system prompt, which is short, names a sub-agent."""
    return system is not None and system.raw.find(CLAUDE_SUBAGENT, 0, CLAUDE_HEADER_BYTES) >= 0


def _read_codex_session(view: _RequestView) -> _Session:
    thread, parent = view.read_id(CODEX_THREAD), view.read_id(CODEX_PARENT)
    return _Session(
        key=None if thread is None else f"{CODEX}:{thread}",
        parent=None if parent is None else f"{CODEX}:{parent}",
        is_subagent=parent is not None or bool(view.headers.get(SUBAGENT_KIND)),
    )


def _read_opencode_session(view: _RequestView) -> _Session:
    session, parent = view.read_id(OPENCODE_SESSION), view.read_id(OPENCODE_PARENT)
    return _Session(
        key=None if session is None else f"{OPENCODE}:{session}",
        parent=None if parent is None else f"{OPENCODE}:{parent}",
        is_subagent=parent is not None,
    )


SESSION_READERS: dict[str, Callable[[_RequestView], _Session]] = {
    CLAUDE_CODE: _read_claude_session,
    CODEX: _read_codex_session,
    OPENCODE: _read_opencode_session,
}


def _matches(rule: SideRule, client: str | None, view: _RequestView) -> bool:
    """Whether a request meets all conditions; those that cost least come first."""
    return (
        (rule.client is None or rule.client == client)
        and not (rule.no_tools and view.has_tools)
        and not (rule.response_format and not view.has_response_format)
        and all(text in view.headers.get(name, "") for name, text in rule.headers.items())
        and _matches_user(rule, view)
        and (rule.system_contains is None or rule.system_contains in view.system_text)
    )


def _matches_user(rule: SideRule, view: _RequestView) -> bool:
    equal, start, part = rule.user_equals, rule.user_starts_with, rule.user_contains
    return (
        (equal is None or equal in view.user_texts)
        and (start is None or any(text.startswith(start) for text in view.user_texts))
        and (part is None or any(part in text for text in view.user_texts))
    )
