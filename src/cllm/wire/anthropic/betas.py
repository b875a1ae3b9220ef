"""Which beta flags Anthropic is sent: those that are known, and those that the settings name.

Data, and the function that reads it. A flag that is not known is never sent, because the API
refuses the whole request for it; it is named in a notice. No flag is added that nobody asked for:
what we send of our own accord needs none.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from cllm.core.notice import Notice

# From Anthropic's SDK and its own clients, 2026-11-15.
KNOWN = frozenset(
    {
        "adaptive-thinking-2026-01-28",
        "advanced-tool-use-2025-11-20",
        "advisor-tool-2026-03-01",
        "agent-memory-2026-07-22",
        "cache-diagnosis-2026-04-07",
        "claude-code-20250219",
        "code-execution-2025-05-22",
        "code-execution-2025-08-25",
        "compact-2026-01-12",
        "compact-2026-09-04",
        "computer-use-2024-10-22",
        "computer-use-2025-01-24",
        "computer-use-2025-11-24",
        "context-1m-2025-08-07",
        "context-management-2025-06-27",
        "dangerous-tool-use-2026-09-03",
        "dev-full-thinking-2025-05-14",
        "effort-2025-11-24",
        "extended-cache-ttl-2025-04-11",
        "fallback-credit-2026-06-01",
        "fallback-credit-2026-07-01",
        "fast-mode-2026-02-01",
        "files-api-2025-04-14",
        "fine-grained-tool-streaming-2025-05-14",
        "inline-tools-2026-09-15",
        "interleaved-thinking-2025-05-14",
        "mcp-client-2025-04-04",
        "mcp-client-2025-11-20",
        "mcp-client-2026-09-15",
        "message-batches-2024-09-24",
        "message-threads-2026-08-12",
        "mid-conversation-output-config-2026-07-01",
        "mid-conversation-system-clear-at-2026-08-21",
        "mid-conversation-tool-changes-2026-07-01",
        "model-context-window-exceeded-2025-08-26",
        "oauth-2025-04-20",
        "output-128k-2025-02-19",
        "output-300k-2026-03-24",
        "pdfs-2024-09-25",
        "per-turn-control-2026-07-01",
        "prompt-caching-2024-07-31",
        "prompt-caching-scope-2026-01-05",
        "redact-thinking-2026-02-12",
        "server-side-fallback-2026-06-01",
        "server-side-fallback-2026-07-01",
        "skills-2025-10-02",
        "structured-outputs-2025-11-13",
        "structured-outputs-2025-12-15",
        "task-budgets-2026-03-13",
        "thinking-binding-controls-2026-08-01",
        "thinking-display-updates-2026-08-18",
        "thinking-token-count-2026-05-13",
        "token-counting-2024-11-01",
        "token-efficient-tools-2025-02-19",
        "token-efficient-tools-2026-03-28",
        "tool-examples-2025-10-29",
        "user-profiles-2026-03-24",
        "user-profiles-2026-08-18",
        "user-profiles-2026-09-04",
        "web-fetch-2025-09-10",
        "web-search-2025-03-05",
    }
)
"""The flags that belong to messages; those of other endpoints would only be refused."""


def read_betas(given: Any) -> tuple[str, ...]:
    """The flags of a request: a list of them, or a header's text."""
    flags = given.split(",") if isinstance(given, str) else given
    if not isinstance(flags, list):
        return ()
    return tuple(flag for flag in flags if isinstance(flag, str))


def allowed_betas(
    asked: Iterable[str], *, always: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[Notice, ...]]:
    """The flags to send, each once, and a notice for each that is left out.

    `always` are the operator's: they go with every request, and may be asked for too.
    """
    wanted = dict.fromkeys(flag.strip() for flag in asked)
    sent = dict.fromkeys(flag.strip() for flag in always)
    unknown = [flag for flag in wanted if flag not in KNOWN and flag not in sent]
    sent |= {flag: None for flag in wanted if flag in KNOWN}
    notices = tuple(
        Notice(
            code="beta_left_out",
            path="betas",
            message=f"The beta flag {flag!r} is not one that Anthropic is known to take.",
        )
        for flag in unknown
        if flag
    )
    return tuple(flag for flag in sent if flag), notices
