"""The column of one conversation."""

from markupsafe import Markup

from cllm.server.api.conversation_ref import find_conversation
from cllm.server.page.layout import render
from cllm.server.state import ApiRequest


async def render_conversation(request: ApiRequest) -> tuple[str, Markup]:
    """Return the title and the column."""
    ref = await find_conversation(request)
    summary = await ref.store.summary(ref.id, owner=ref.owner)
    title = summary.title or ref.public_id
    return title, render("conversation.html", summary=summary, title=title)
