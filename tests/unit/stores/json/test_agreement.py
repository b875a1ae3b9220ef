"""Any series of operations has the same outcome in the JSON file store as in memory."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from tests.store_machine import IDS, REFS, StoreMachine

from cllm.core.conversation import StoredConversation
from cllm.core.ports import Clock, NewConversation, Store
from cllm.stores.json.store import JsonFileStore
from cllm.wire.path_digest import digest_turns


class FilesAgree(StoreMachine):
    def prepare(self) -> None:
        self.folder = Path(tempfile.mkdtemp())

    def open_store(self, clock: Clock) -> Store:
        cache = self.folder / "cache"
        return JsonFileStore(self.folder / "c", clock=clock, cache=cache, patience=0)

    @rule(ref=IDS, to=IDS, data=st.data())
    def branch_through(self, ref: str, to: str, data: st.DataObject) -> None:
        """Branch along a path that can contain variants."""
        found = self.outcome(self.memory.load(ref))
        if not isinstance(found, StoredConversation):
            return
        slots = [
            [each.id for each in (turn, *found.variants) if each.place == turn.place]
            for turn in found.turns
        ]
        path = [data.draw(st.sampled_from(ids)) for ids in slots]
        self.same("branch", ref, NewConversation(id=to), path=path)

    @invariant()
    def check_paths(self) -> None:
        """Every message is found by its digest, and every family is complete."""
        loaded = (self.outcome(self.memory.load(ref)) for ref in REFS)
        for conversation in (each for each in loaded if isinstance(each, StoredConversation)):
            for digests in digest_turns(conversation).values():
                found, expected = self.both("find_paths", digests[::-1])
                assert set(found) == set(expected)
                assert found or conversation.archived_at is not None
            self.same("list_family", conversation.family_key)

    def clean_up(self) -> None:
        shutil.rmtree(self.folder)


TestFilesAgree = FilesAgree.TestCase
TestFilesAgree.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
