"""Any series of operations has the same outcome in the JSON file store as in memory."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from tests.store_machine import StoreMachine

from cllm.core.ports import Clock, Store
from cllm.stores.json.store import JsonFileStore


class FilesAgree(StoreMachine):
    def prepare(self) -> None:
        self.folder = Path(tempfile.mkdtemp())

    def open_store(self, clock: Clock) -> Store:
        return JsonFileStore(self.folder / "c", clock=clock, patience=0)

    def clean_up(self) -> None:
        shutil.rmtree(self.folder)


TestFilesAgree = FilesAgree.TestCase
TestFilesAgree.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
