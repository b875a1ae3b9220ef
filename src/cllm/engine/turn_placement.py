"""Starts the turn of a client that sends its whole history in the conversation where it belongs."""

from collections.abc import Awaitable, Callable

import msgspec

from cllm.core.conversation import Branch, Turn
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    StoreUnavailableError,
)
from cllm.core.ports import Clock, Lease, NewId, Store, TurnStart
from cllm.engine.placement import Placement, new_placement
from cllm.engine.recognition import HistorySearch
from cllm.engine.request import NOT_RECORDED, ClientHistory, PlacedTurn, TurnRequest
from cllm.wire.path_digest import read_content

MAX_ATTEMPTS = 3
"""Attempts to find the conversation if other requests change it."""

TakeLease = Callable[[TurnRequest], Awaitable[Lease]]


class TurnPlacer:
    """Finds the conversation of a request that contains its whole history."""

    def __init__(
        self,
        request: TurnRequest,
        history: ClientHistory,
        *,
        store: Store,
        take_lease: TakeLease,
        new_id: NewId,
        clock: Clock,
    ) -> None:
        self._request = request
        self._history = history
        self._store = store
        self._take_lease = take_lease
        self._new_id = new_id
        self._clock = clock
        self._owner = request.storage.owner
        self._steps = request.storage.optional_steps
        self._contents = [read_content(message) for message in request.input.messages]

    async def place(self) -> PlacedTurn:
        """Take the lease of the turn; an optional turn can be left unrecorded."""
        steps = self._steps
        if steps is None:
            return await self._place()
        placed = await steps.run(self._place(), when_late=self._drop)
        if placed is not None:
            steps.restart_limit()
            return placed
        unrecorded = self._request.with_storage(ref=None, create=None)
        return PlacedTurn(request=unrecorded, notices=(NOT_RECORDED,))

    async def _place(self) -> PlacedTurn:
        busy: Placement | None = None
        for _ in range(MAX_ATTEMPTS):
            search = HistorySearch(
                self._store,
                self._request.input.messages,
                self._contents,
                self._history,
                owner=self._owner,
                new_id=self._new_id,
            )
            placement = await search.place(self._request.storage.create)
            if self._steps is not None and self._steps.is_late:
                raise StoreUnavailableError("The turn has started without the store.")
            try:
                placed = await self._start(placement)
            except ConversationExistsError:
                # Another request has created it meanwhile.
                continue
            except ConversationBusyError:
                if self._steps is None:
                    raise
                busy = placement
                break
            if placed is not None:
                return placed
        if self._steps is None:
            raise ConversationBusyError(self._history.conversation or "")
        apart = self._place_apart(busy)
        await self._prepare(apart)
        return await self._run(apart)

    def _place_apart(self, busy: Placement | None) -> Placement:
        """Return a branch for a request whose conversation is busy."""
        if busy is None or busy.create is not None:
            messages = self._request.input.messages
            return new_placement(messages, self._history, self._new_id())
        if busy.branch_if_busy is not None:
            created = new_placement(busy.messages, self._history, self._new_id())
            return msgspec.structs.replace(
                created, branch=busy.branch_if_busy, recognised=busy.recognised
            )
        parent = Branch(conversation=busy.ref, sequence=0)
        messages = self._request.input.messages
        return new_placement(messages, self._history, self._new_id(), parent=parent)

    async def _drop(self, placed: PlacedTurn | None) -> None:
        """Drop the turn of a lease that was taken too late."""
        if placed is not None and placed.lease is not None:
            await self._store.drop_turn(placed.lease)

    async def _start(self, placement: Placement) -> PlacedTurn | None:
        """Return None if the conversation has changed since it was placed."""
        await self._prepare(placement)
        placed = await self._run(placement)
        lease = placed.lease
        expected = placement.message_count
        if lease is None or expected in (None, lease.conversation.message_count):
            return placed
        await self._store.drop_turn(lease)
        return None

    async def _prepare(self, placement: Placement) -> None:
        """Make the path of the client the default path, or create the branch."""
        if placement.cut_reply is not None:
            await self._add_cut_reply(placement)
        if placement.chosen_variant is not None:
            await self._store.choose_variant(
                placement.ref, placement.chosen_variant, owner=self._owner
            )
        if placement.branch is not None and placement.create is not None:
            point = placement.branch
            await self._store.branch(
                point.conversation,
                placement.create,
                at=point.at,
                path=point.path,
                owner=self._owner,
            )

    async def _add_cut_reply(self, placement: Placement) -> None:
        cut = placement.cut_reply
        if cut is None:
            return
        start = TurnStart(id=self._new_id(), messages=cut.messages, place=cut.place)
        lease = await self._store.begin_turn(placement.ref, start, owner=self._owner, tail=0)
        turn: Turn = msgspec.structs.replace(lease.turn, state="incomplete", ended_at=self._clock())
        await self._store.finish_turn(lease, turn)

    async def _run(self, placement: Placement) -> PlacedTurn:
        request = self._request.with_storage(
            ref=placement.ref,
            create=None if placement.branch is not None else placement.create,
            place=placement.place,
            preloaded=msgspec.UNSET,
        ).with_input(
            messages=placement.messages,
            content_hashes=tuple([content.whole for content in self._contents]),
        )
        return PlacedTurn(
            request=request,
            lease=await self._take_lease(request),
            notices=tuple(placement.list_notices()),
        )
