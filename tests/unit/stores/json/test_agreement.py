"""Any series of operations has the same outcome in the JSON file store as in memory."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis.stateful import invariant
from tests.store_machine import REFS, StoreMachine
from tests.torture import choose_size

from cllm.core.conversation import StoredConversation
from cllm.core.ports import Clock, Store
from cllm.stores.json.store import JsonFileStore
from cllm.wire.path_digest import digest_turns


class FilesAgree(StoreMachine):
    def prepare(self) -> None:
        self.folder = Path(tempfile.mkdtemp())

    def open_store(self, clock: Clock) -> Store:
        cache = self.folder / "cache"
        return JsonFileStore(self.folder / "c", clock=clock, cache=cache, patience=0)

    @invariant()
    def check_paths(self) -> None:
        """Every message is found by its digest, and every family is complete."""
        loaded = (self.outcome(self.memory.load(ref)) for ref in REFS)
        for conversation in (each for each in loaded if isinstance(each, StoredConversation)):
            for digests in digest_turns(conversation).values():
                found, expected = self.both("find_paths", digests[::-1])
                assert set(found) == set(expected)
                every = self.step(self.store.find_paths(digests[::-1]))
                assert every or conversation.archived_at is not None
            self.same("list_family", conversation.family_key)

    def clean_up(self) -> None:
        shutil.rmtree(self.folder)


TestFilesAgree = FilesAgree.TestCase
TestFilesAgree.settings = settings(
    max_examples=choose_size(8, 300), stateful_step_count=25, deadline=None
)
