"""The request for a turn and the events of a turn, as values."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from cllm.core.conversation import LOCAL_OWNER, Policy, StoredConversation, Turn
from cllm.core.errors import CllmError
from cllm.core.message import Dialect, Message
from cllm.core.notice import Notice
from cllm.core.ports import Lease, NewConversation, Provider, Tail
from cllm.core.prompt import Original, Prompt
from cllm.core.reply import (
    ModelReported,
    Noticed,
    ReplyDelta,
    ReplyFinished,
    Usage,
    UsageReported,
    Verbatim,
)
from cllm.engine.prompt_history import ModelContext
from cllm.engine.tool_rounds import ToolBox, ToolRoundEnded
from cllm.history.context import Context, ContextCommand
from cllm.history.system_prompt import GivenPrompt, SystemChoice
from cllm.window.strategies import Strategy

if TYPE_CHECKING:
    from cllm.engine.optional_steps import OptionalSteps

OnInterrupt = Literal["keep", "discard"]
Price = Callable[[Usage], float | None]
CountUsage = Callable[[str, Usage, float | None], None]
"""Gets a model, its usage and the cost."""
OnUnrecorded = Callable[[CllmError], None]
"""Gets the error of a store that cannot save a turn that is only recorded."""
NOT_RECORDED = Notice(
    code="not_recorded",
    message="This turn is not recorded, because the store cannot save it now.",
)


class ModelRoute(msgspec.Struct, frozen=True, kw_only=True):
    provider: Provider
    model: str


def unknown_window(_route: ModelRoute) -> int | None:
    return None


def unknown_price(_route: object) -> Price:
    return lambda _usage: None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A call of one model; turns are saved with `model`, not `route.model`."""

    route: ModelRoute
    model: str
    choice: SystemChoice
    context: Context
    price: Price
    model_context: ModelContext


class TurnInput(msgspec.Struct, frozen=True, kw_only=True):
    """`messages` are saved; `prompt_messages` replaces them in the prompt.

    `prefix` goes before every system prompt and is never saved. `original` is the client's request.
    `content_hashes` are those of the messages of a client that sends its whole history.
    """

    messages: tuple[Message, ...]
    prompt_messages: tuple[Message, ...] | None = None
    content_hashes: tuple[str, ...] = ()
    system: GivenPrompt = GivenPrompt()
    prefix: str | None = None
    context: tuple[ContextCommand, ...] = ()
    original: Original | None = None


class TurnTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The model to call, and how; `parameters` are in the format of `dialect`.

    `overrides_model`: use `model` instead of the conversation's, for this turn; `switches_model`:
    from this turn on. Otherwise `model_is_explicit` reports that the conversation's own model is
    used.
    `fallbacks` are called in order if a model fails. `tools` are the tools that cllm runs.
    `retries`: the retries of each call; None as configured.
    """

    model: str
    model_is_explicit: bool = False
    overrides_model: bool = False
    switches_model: bool = False
    fallbacks: tuple[str, ...] = ()
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    dialect: Dialect = "openai"
    stream: bool = True
    strict: bool = False
    tools: ToolBox | None = None
    retries: int | None = None

    @property
    def uses_own_model(self) -> bool:
        """Whether the turn uses `model`, whatever the model of its conversation is."""
        return self.overrides_model or self.switches_model


class ClientHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look for the history of a request.

    - `conversation`: the ID or name in the request.
    - `item_conversation`: that of the last item ID in the request, which may be wrong.
    - `family`: the client's session; `parent_family`: the session that started it.
    - `client`: the program that sent the request; `side`: the kind of a side request.
    """

    conversation: str | None = None
    item_conversation: str | None = None
    family: str | None = None
    parent_family: str | None = None
    client: str | None = None
    side: str | None = None
    strict: bool = False

    @property
    def has_key(self) -> bool:
        return self.conversation is not None or self.family is not None

    @property
    def source(self) -> str | None:
        return self.client if self.side is None else join_source(self.client, self.side)


def join_source(client: str | None, side: str) -> str:
    """Return the source of a client's side conversations of this kind."""
    return side if client is None else f"{client}:{side}"


class TurnStorage(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation of the turn, and how much of it is loaded and saved.

    - `ref`: its ID or name; without it, nothing is saved.
    - `preloaded`: the conversation if the caller loaded it, None if it does not exist.
    - `skip_preload`: take the lease without loading first. Raises ConversationNotFoundError for
      archived conversations.
    - `expected_count`: the messages before the turn; with another number the conversation is busy.
    - `place`: answer the turn with this `place` again; its reply stays as a variant.
    - `saves_unsent`: save the turn also if it fails before the request is sent. A turn whose
      provider fails is always saved.
    - `wait`: seconds to wait for another turn; None is without limit.
    - `accept`: raises ReplySchemaError or SchemaError for a reply that must not be saved.
    - `count_unsaved`: gets the model, usage and cost of a stateless turn that does not complete.
    - `on_lost`: called if another process takes the lease away.
    - `client_history`: `input.messages` is the whole history of a client. It is sent as it is; the
      conversation is found by it, and the new messages are saved.
    - `parameters`: those of the request that are stored with the turn.
    - `optional_steps`: saving the turn is optional: runs the store operations, with a time limit.
    """

    ref: str | None = None
    create: NewConversation | None = None
    preloaded: StoredConversation | msgspec.UnsetType | None = msgspec.UNSET
    skip_preload: bool = False
    owner: str = LOCAL_OWNER
    cache_key: str | None = None
    read_only: bool = False
    expected_count: int | None = None
    place: str | None = None
    system: Policy = "captured"
    window: Callable[[str], Strategy] | None = None
    saves_unsent: bool = False
    wait: float | None = None
    on_interrupt: OnInterrupt = "keep"
    accept: Callable[[ReplyFinished], None] | None = None
    count_unsaved: CountUsage | None = None
    on_lost: Callable[[], object] | None = None
    client_history: ClientHistory | None = None
    parameters: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    optional_steps: "OptionalSteps | None" = None

    @property
    def tail(self) -> Tail:
        if self.client_history is not None:
            return 1
        return None if self.window is None else "window"


class StorageChanges(TypedDict, total=False):
    """The keywords of `with_storage`."""

    ref: str | None
    create: NewConversation | None
    preloaded: StoredConversation | msgspec.UnsetType | None
    skip_preload: bool
    owner: str
    cache_key: str | None
    read_only: bool
    expected_count: int | None
    place: str | None
    system: Policy
    window: Callable[[str], Strategy] | None
    saves_unsent: bool
    wait: float | None
    on_interrupt: OnInterrupt
    accept: Callable[[ReplyFinished], None] | None
    count_unsaved: CountUsage | None
    on_lost: Callable[[], object] | None
    client_history: ClientHistory | None
    parameters: msgspec.Raw | msgspec.UnsetType
    optional_steps: "OptionalSteps | None"


class InputChanges(TypedDict, total=False):
    messages: tuple[Message, ...]
    prompt_messages: tuple[Message, ...] | None
    content_hashes: tuple[str, ...]
    system: GivenPrompt
    prefix: str | None
    context: tuple[ContextCommand, ...]
    original: Original | None


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    input: TurnInput
    target: TurnTarget
    storage: TurnStorage = TurnStorage()

    def with_storage(self, **changes: Unpack[StorageChanges]) -> "TurnRequest":
        return replace(self, storage=replace(self.storage, **changes))

    def with_input(self, **changes: Unpack[InputChanges]) -> "TurnRequest":
        return replace(self, input=replace(self.input, **changes))


class PlacedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The request for the conversation in which the turn runs; without a lease it is not saved."""

    request: TurnRequest
    lease: Lease | None = None
    notices: tuple[Notice, ...] = ()


class TurnQueued(msgspec.Struct, frozen=True, kw_only=True):
    """The turn waits for another turn of the conversation."""

    conversation: str


class TurnStarted(msgspec.Struct, frozen=True, kw_only=True):
    """The provider is about to be called."""

    conversation: str | None
    model: str
    prompt: Prompt
    lease: Lease | None = None


class TurnEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The reply is complete and saved; `cost` is for all rounds, in US dollars."""

    reply: ReplyFinished
    turn: Turn | None
    model: str
    cost: float | None = None


TurnEvent = (
    TurnQueued
    | TurnStarted
    | Noticed
    | ReplyDelta
    | Verbatim
    | UsageReported
    | ModelReported
    | ToolRoundEnded
    | ReplyFinished
    | TurnEnded
)
"""`ReplyFinished` comes when the reply is complete and not yet saved, `TurnEnded` after it."""
