"""Messages with the digest of their path; conversations with a family, a source and a side.

The digests are computed conversation by conversation. A message that cannot be read, and those
after it, have none.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from alembic import op

from cllm.core.message import Message
from cllm.stores.sql.migrations.versions.r0005_turns import INDEX
from cllm.stores.sql.rows import UnreadableRowError, decode_message
from cllm.wire.path_digest import ROOT, digest_path

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

HISTORY = (b"complete", b"incomplete")
BATCH = 500
"""Rows in one statement."""
# Text can have any bytes in SQLite, and a damaged row must not stop the upgrade.
_TEXTS = {
    "sqlite": "CAST({0} AS BLOB)",
    "postgresql": "convert_to({0}, 'UTF8')",
}
_KEYS = {
    "sqlite": "SELECT rowid FROM conversations ORDER BY rowid",
    "postgresql": "SELECT owner, number FROM conversations ORDER BY owner, number",
}
_JOINED = {
    "sqlite": """FROM conversations c
        CROSS JOIN turns t ON t.owner = c.owner AND t.conversation_id = c.id
        CROSS JOIN messages m
            ON m.owner = t.owner AND m.conversation_id = t.conversation_id AND m.turn = t.number
        WHERE c.rowid = :key""",
    "postgresql": """FROM turns t JOIN messages m
            ON m.owner = t.owner AND m.conversation = t.conversation AND m.turn = t.number
        WHERE t.owner = :owner AND t.conversation = :key""",
}
_UPDATE = {
    "sqlite": "UPDATE messages SET digest = :digest WHERE number = :number",
    "postgresql": """UPDATE messages SET digest = :digest WHERE owner = :owner
        AND conversation = :key AND turn = :turn AND ordinal = :ordinal""",
}
_BRANCHES = {
    "sqlite": "SELECT rowid, {owner}, {id}, {parent_id} FROM conversations",
    "postgresql": "SELECT number, {owner}, {id}, {parent_id} FROM conversations",
}
_SET_FAMILY = {
    "sqlite": "UPDATE conversations SET family = CAST(:family AS TEXT) WHERE rowid = :key",
    "postgresql": """UPDATE conversations SET family = convert_from(:family, 'UTF8')
        WHERE owner = convert_from(:owner, 'UTF8') AND number = :key""",
}


_Key = tuple[bytes, bytes]
"""The owner and id of a conversation."""


def upgrade() -> None:
    op.add_column("messages", sa.Column("digest", sa.LargeBinary))
    for name in ("parent_kind", "family", "source"):
        op.add_column("conversations", sa.Column(name, sa.Text))
    side = sa.Column("side", sa.SmallInteger, nullable=False, server_default="0")
    op.add_column("conversations", side)
    op.add_column("conversations", sa.Column("path_start", sa.LargeBinary))
    bind = op.get_bind()
    is_sqlite = bind.dialect.name == "sqlite"
    has_messages = bind.execute(sa.text("SELECT 1 FROM messages LIMIT 1")).first() is not None
    if has_messages and not is_sqlite:
        # Every row is written again, and this index is the one that is expensive to maintain.
        _execute("DROP INDEX messages_by_terms")
    fill_digests(bind)
    fill_families(bind)
    numbers = [] if is_sqlite else ["number"]
    op.create_index("messages_by_digest", "messages", ["owner", "digest", *numbers])
    op.create_index("conversations_by_family", "conversations", ["owner", "family", "updated_at"])
    if has_messages and not is_sqlite:
        _execute(*INDEX, "ANALYZE conversations, messages")


def downgrade() -> None:
    op.drop_index("conversations_by_family", "conversations")
    op.drop_index("messages_by_digest", "messages")
    op.drop_column("messages", "digest")
    for column in ("path_start", "side", "source", "family", "parent_kind"):
        op.drop_column("conversations", column)


def _execute(*statements: str) -> None:
    for statement in statements:
        op.get_bind().exec_driver_sql(statement)


def fill_digests(bind: sa.Connection) -> None:
    engine = bind.dialect.name
    names = ("t.id", "t.place", "t.state", "m.role", "m.dialect", "m.raw")
    texts = ", ".join(_TEXTS[engine].format(name) for name in names)
    query = sa.text(f"""SELECT m.number, m.turn, m.ordinal, t.position, {texts} {_JOINED[engine]}
        ORDER BY t.position IS NULL, t.position, t.number, m.ordinal""")
    update = sa.text(_UPDATE[engine])
    for key in bind.execute(sa.text(_KEYS[engine])).all():
        where = dict(zip(("key", "owner"), reversed(key), strict=False))
        digests = _digest_rows(bind.execute(query, where).all())
        for first in range(0, len(digests), BATCH):
            bind.execute(update, [where | values for values in digests[first : first + BATCH]])


def _digest_rows(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """The digests of a conversation's messages: the path in order, then the variants."""
    digests: list[dict[str, Any]] = []
    slots: dict[bytes, bytes | None] = {}
    before: bytes | None = ROOT
    for _, group in groupby(rows, key=lambda row: row[1]):
        turn = list(group)
        _, _, _, position, turn_id, place, state, *_ = turn[0]
        slot = turn_id if place is None else place
        start = before if position is not None else slots.get(slot)
        slots.setdefault(slot, start)
        own = list(_digest_turn(turn, start))
        for row, digest in zip(turn, own, strict=True):
            at = {"number": row[0], "turn": row[1], "ordinal": row[2]}
            digests.append(at | {"digest": digest})
        if position is not None and state in HISTORY:
            before = own[-1]
    return [values for values in digests if values["digest"] is not None]


def _digest_turn(rows: Sequence[Any], start: bytes | None) -> Iterator[bytes | None]:
    """Yield a digest for each message; None from the first one that cannot be read."""
    messages: list[Message] = []
    for row in rows:
        try:
            role, dialect, raw = (text.decode() for text in row[-3:])
            messages.append(decode_message(role, dialect, raw))
        except (UnreadableRowError, UnicodeDecodeError, AttributeError):
            break
    digests = [] if start is None else digest_path(messages, start)
    yield from digests
    yield from [None] * (len(rows) - len(digests))


def fill_families(bind: sa.Connection) -> None:
    """The family of a branch is the first conversation of its parents, also if it was deleted."""
    engine = bind.dialect.name
    bind.execute(sa.text("UPDATE conversations SET family = id"))
    texts = {name: _TEXTS[engine].format(name) for name in ("owner", "id", "parent_id")}
    query = f"{_BRANCHES[engine].format(**texts)} WHERE parent_id IS NOT NULL"
    rows = bind.execute(sa.text(query)).all()
    parents = {(owner, own_id): parent for _, owner, own_id, parent in rows}
    roots: dict[_Key, bytes] = {}
    families = [
        {"key": key, "owner": owner, "family": _find_root((owner, own_id), parents, roots)}
        for key, owner, own_id, _ in rows
    ]
    for first in range(0, len(families), BATCH):
        bind.execute(sa.text(_SET_FAMILY[engine]), families[first : first + BATCH])


def _find_root(key: _Key, parents: dict[_Key, bytes], roots: dict[_Key, bytes]) -> bytes:
    """The id of the first conversation; in a circle, the same one for all of them."""
    owner, chain = key[0], {key: None}
    while key not in roots:
        parent = parents.get(key)
        if parent is None:
            roots[key] = key[1]
        elif (owner, parent) in chain:
            circle = list(chain)
            roots[key] = min(own_id for _, own_id in circle[circle.index((owner, parent)) :])
        else:
            key = (owner, parent)
            chain[key] = None
    roots |= dict.fromkeys(chain, roots[key])
    return roots[key]
