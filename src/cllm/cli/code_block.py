"""The first code block of a reply, for `-x`."""

import re

FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)")


def find_code_block(text: str) -> str | None:
    """Return the content of the first fenced code block; an open block ends with the text."""
    fence = ""
    lines: list[str] = []
    for line in text.splitlines():
        match = FENCE.fullmatch(line)
        if not fence:
            if match is not None and not (match["fence"][0] == "`" and "`" in match["info"]):
                fence = match["fence"]
        elif match is not None and match["fence"].startswith(fence) and not match["info"].strip():
            return "\n".join(lines)
        else:
            lines.append(line)
    return "\n".join(lines) if fence else None
