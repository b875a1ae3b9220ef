"""The form at the end of the main column: message, model, system prompt, attachments."""

import msgspec
from markupsafe import Markup

from cllm.server.api.conversation_ref import find_conversation
from cllm.server.page.layout import render
from cllm.server.state import ApiRequest


class ComposerView(msgspec.Struct, frozen=True, kw_only=True):
    """`model` is that of the next turn. `takes_system`: a system prompt can be sent per turn."""

    conversation: str = ""
    model: str = ""
    takes_system: bool = True
    is_archived: bool = False


async def render_composer(request: ApiRequest) -> Markup:
    """Return the form for the conversation in the path, or for a new one."""
    default = request.server.app.model or ""
    if "conversation_id" not in request.path_params:
        return render("composer.html", composer=ComposerView(model=default))
    ref = await find_conversation(request)
    newest = await ref.store.load(ref.id, owner=ref.owner, tail=1)
    last = newest.turns[-1].model if newest.turns else None
    record = newest.system_record
    view = ComposerView(
        conversation=ref.public_id,
        model=newest.model or last or default,
        takes_system=record is not None and record.policy == "dynamic",
        is_archived=newest.archived_at is not None,
    )
    return render("composer.html", composer=view)
