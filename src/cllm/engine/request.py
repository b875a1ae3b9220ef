"""What a surface asks of the engine, and what it hears of a turn: values, and nothing that acts."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from cllm.assembly.system import Context, GivenPrompt, SystemChoice
from cllm.assembly.window import Strategy
from cllm.core.context import ContextCommand
from cllm.core.conversation import LOCAL_OWNER, Conversation, Policy, Turn
from cllm.core.message import Dialect, Message
from cllm.core.ports import Lease, NewConversation, Provider, Tail
from cllm.core.prompt import Original, Prompt
from cllm.core.reply import Noticed, ReplyDelta, ReplyFinished, Usage, Verbatim
from cllm.engine.log import Served
from cllm.engine.rounds import RoundEnded, ToolBox

OnInterrupt = Literal["keep", "discard"]
Price = Callable[[Usage], float | None]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Who serves a model: a provider, and the model's name there."""

    provider: Provider
    model: str


def unknown_window(_route: Route) -> int | None:
    """Return None: the context window is unknown."""
    return None


def unknown_price(_route: object) -> Price:
    """Return a price function for which every cost is unknown, which is not zero."""
    return lambda _usage: None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One model about to be called: who serves it, under which prompt and context, at what price.

    `model` is the name that turns are saved with, `route.model` the one at the provider.
    """

    route: Route
    model: str
    choice: SystemChoice
    context: Context
    price: Price
    served: Served


class TurnInput(msgspec.Struct, frozen=True, kw_only=True):
    """What the user says in a turn, and the prompt and context that go with it.

    `messages` are saved; `sent` replaces them in the prompt if it differs. `prefix` is put before
    every system prompt and is never saved. `context` are the commands whose output the model gets,
    in the order of their blocks. `original` is the client's own body.
    """

    messages: tuple[Message, ...]
    sent: tuple[Message, ...] | None = None
    system: GivenPrompt = GivenPrompt()
    prefix: str | None = None
    context: tuple[ContextCommand, ...] = ()
    original: Original | None = None


class TurnTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The model that is called, and how.

    `fallbacks` are called in this order when the model before gives no reply. `parameters` are in
    the format of `dialect`. `tools` are run for the model when it calls them. `strict` is
    that of `Prompt`.
    """

    model: str
    model_is_explicit: bool = False
    fallbacks: tuple[str, ...] = ()
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    dialect: Dialect = "openai"
    stream: bool = True
    strict: bool = False
    tools: ToolBox | None = None


class TurnPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which conversation the turn belongs to, what is loaded of it, and what is saved.

    Without `ref` there is no conversation and nothing is saved. `create` creates a conversation
    that does not exist yet. `found` is the conversation if the caller has loaded it already, None
    if there was none. `at_once`: take the lease without loading first; an archived conversation is
    not found then. `cache_key` is that of `Prompt`. `read_only` sends the history and saves
    nothing. `place` answers that turn again, which stays as a variant. `system` says what a new
    conversation does with its prompt.
    `window` chooses, by the model, what of the conversation is sent; without it, everything is.
    `visible` saves the turn when it starts, and also if it fails. `wait` is for how many seconds
    the turn waits while another one runs in the conversation; None is without limit. `accept`
    raises an error for a reply that must not be saved.
    """

    ref: str | None = None
    create: NewConversation | None = None
    found: Conversation | msgspec.UnsetType | None = msgspec.UNSET
    at_once: bool = False
    owner: str = LOCAL_OWNER
    cache_key: str | None = None
    read_only: bool = False
    place: str | None = None
    system: Policy = "captured"
    window: Callable[[str], Strategy] | None = None
    visible: bool = False
    wait: float | None = None
    on_interrupt: OnInterrupt = "keep"
    accept: Callable[[ReplyFinished], None] | None = None

    @property
    def tail(self) -> Tail:
        """How much of a conversation to load: what the window can use, or all without one."""
        return None if self.window is None else "window"


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, as an interface requests it from the engine."""

    input: TurnInput
    target: TurnTarget
    policy: TurnPolicy = TurnPolicy()

    def with_policy(self, **changes: Any) -> "TurnRequest":
        """The request with other values for these fields of its policy."""
        return replace(self, policy=replace(self.policy, **changes))

    def with_input(self, **changes: Any) -> "TurnRequest":
        """The request with other values for these fields of its input."""
        return replace(self, input=replace(self.input, **changes))


class TurnWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Another turn is running in the conversation; this one begins when that has ended."""

    conversation: str


class TurnBegan(msgspec.Struct, frozen=True, kw_only=True):
    """The provider is about to be asked with this prompt; the lease is that of a kept turn."""

    conversation: str | None
    model: str
    prompt: Prompt
    lease: Lease | None = None


class TurnEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The reply is whole, and kept if there is a conversation to keep it in.

    `model` is the one that answered, `cost` in US dollars what its provider charges for all rounds
    of the turn, if known.
    """

    reply: ReplyFinished
    turn: Turn | None
    model: str
    cost: float | None = None


TurnEvent = (
    TurnWaits | TurnBegan | Noticed | ReplyDelta | Verbatim | RoundEnded | ReplyFinished | TurnEnded
)
"""`ReplyFinished` comes when the reply is complete and not yet saved, `TurnEnded` after it."""
