"""What a surface asks of the engine, and what it hears of a turn: values, and nothing that acts."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

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


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as a surface asks for it.

    Without `ref` there is no conversation and nothing is kept. With `create` a conversation that
    does not exist yet is made. `place` asks again in the place of that turn, which stays as a
    variant. `read_only` sends a conversation's history and keeps nothing.
    `visible` keeps the turn from its beginning, and keeps it as failed if it fails. While another
    turn runs in the conversation this one waits for `wait` seconds, None being for ever.
    `window` chooses, by the model, what of the conversation is sent; without it that is all.
    `tools` are used for the model when it asks for them.
    `context` are the commands whose output the model is to know, in the order of their blocks.
    `parameters` are in the words of `dialect`. `fallbacks` are models to ask, in this order, when
    the one before gives nothing. `strict` and `original` are the prompt's. `accept` looks at the
    reply before it is kept, and raises if it is not to be.
    `found` is the conversation if the surface has looked already, None if there was none. `at_once`
    is for one that is to be held without a look before, and is not there if it is archived. `sent`
    is what is sent of `messages` where that is not what is kept. `prefix` is a text that stands
    before every system prompt and is kept nowhere.
    """

    messages: tuple[Message, ...]
    model: str
    model_is_explicit: bool = False
    ref: str | None = None
    create: NewConversation | None = None
    owner: str = LOCAL_OWNER
    system: GivenPrompt = GivenPrompt()
    policy: Policy = "captured"
    context: tuple[ContextCommand, ...] = ()
    window: Callable[[str], Strategy] | None = None
    tools: ToolBox | None = None
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    dialect: Dialect = "openai"
    fallbacks: tuple[str, ...] = ()
    strict: bool = False
    original: Original | None = None
    accept: Callable[[ReplyFinished], None] | None = None
    found: Conversation | msgspec.UnsetType | None = msgspec.UNSET
    at_once: bool = False
    sent: tuple[Message, ...] | None = None
    prefix: str | None = None
    stream: bool = True
    place: str | None = None
    read_only: bool = False
    visible: bool = False
    wait: float | None = None
    on_interrupt: OnInterrupt = "keep"
    cache_key: str | None = None

    @property
    def tail(self) -> Tail:
        """How much of a conversation it loads: what its window can use, or all without one."""
        return None if self.window is None else "window"


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
