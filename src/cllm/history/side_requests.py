"""Rules for side requests: requests of an agent that are not turns of a conversation.

Examples are requests for a title, a commit message or the summary of a compaction.
"""

import msgspec


class SideRule(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of side request, and the conditions that a request of this kind meets.

    All conditions that are set have to be met. `headers` are texts that the headers contain, by
    lower-case name. `no_tools`: the request has no tools. `response_format`: it demands JSON. The
    system text is the text of the system prompt; `user_…` conditions apply to the text blocks of
    the last user message.
    """

    name: str
    record: bool = True
    client: str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    no_tools: bool = False
    response_format: bool = False
    system_contains: str | None = None
    user_equals: str | None = None
    user_starts_with: str | None = None
    user_contains: str | None = None

    @property
    def has_condition(self) -> bool:
        return msgspec.structs.replace(self, record=True) != SideRule(name=self.name)
