"""PostgreSQL keeps no terms beside a text that tells them: the search index takes them from there.

`message_terms` makes the terms of a row as `cllm.stores.finding` does for the scripts that it
knows. Whoever writes a message compares, and keeps the terms only if they are others. The terms of
an index are those of 32,768 messages at a time, so that their lists stay short and those of the
newest messages can be asked for first. On both engines nothing is found by sequence number, so
that its index goes.
"""

import unicodedata

import sqlalchemy as sa
from alembic import op

from cllm.stores.sql.search import owner_term

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

CASED = (
    *((0xC0, 0xDE), (0x100, 0x17E), (0x386, 0x3C2), (0x400, 0x42F), (0x460, 0x480)),
    *((0x48A, 0x52E), (0x1EA0, 0x1EFE)),
)
LETTERS = (
    "\u00df-\u00f6\u00f8-\u0131\u0134-\u013e\u0141-\u0148\u014a-\u017e\u03ac-\u03ce"
    "\u0430-\u0481\u048a-\u052f\u05d0-\u05ea\u0620-\u064a\u1ea0-\u1eff"
)
JOINED = (
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)


def _folded(letter: str) -> str | None:
    """The small letter of a capital one, if that is all there is to it."""
    small = letter.casefold()
    is_plain = unicodedata.is_normalized("NFKC", letter + small)
    return small if is_plain and len(small) == 1 and small != letter else None


FOLDED = {
    chr(code): small
    for first, last in CASED
    for code in range(first, last + 1)
    if (small := _folded(chr(code))) is not None
}
CAPITAL, SMALL = "".join(FOLDED), "".join(FOLDED.values())

# Nothing in it depends on the database's locale, or on the path on which functions are found. It
# takes any text, whether it is JSON or not, and never fails.
TERMS = rf"""
CREATE FUNCTION message_terms(owner text, number bigint, raw text, terms text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE COST 5000 AS $function$
DECLARE
    words text COLLATE "C" := terms;
    bucket text COLLATE "C" := to_hex(number >> 15) || '.';
    escaped CONSTANT text COLLATE "C" := '\\[^u]|\\u20[0-6].';
BEGIN
    IF words IS NULL THEN
        IF length(raw) > 16000 THEN
            RETURN NULL;
        END IF;
        words := lower(
            substring(raw COLLATE "C" FROM '"(?:content|text)": ?"((?:[^"\\]|\\.)*)"'));
        IF octet_length(words) <> length(words) THEN
            words := translate(replace(words, 'ß', 'ss'), '{CAPITAL}', '{SMALL}');
            words := regexp_replace(
                words, '(?:' || escaped || '|[^a-z0-9{LETTERS}{JOINED}\\])+', ' ', 'g');
            IF words ~ '[{JOINED}]' THEN
                words := regexp_replace(words, '[{JOINED}]+', ' \& ', 'g');
                words := regexp_replace(words, '[{JOINED}]{{2}}', '\& ', 'g') || ' '
                    || regexp_replace(regexp_replace(words, '(?:^| )[{JOINED}]', ' ', 'g'),
                        '[{JOINED}]{{2}}', '\& ', 'g');
            END IF;
        ELSIF strpos(words, '\') > 0 THEN
            words := regexp_replace(words, '(?:' || escaped || '|[^a-z0-9\\])+', ' ', 'g');
        ELSE
            words := regexp_replace(words, '[^a-z0-9]+', ' ', 'g');
        END IF;
        IF words ~ '[^ ]{{65}}' THEN
            RETURN NULL;
        END IF;
    END IF;
    words := btrim(words);
    IF words = '' THEN
        RETURN NULL;
    END IF;
    RETURN array_to_tsvector((array_remove(string_to_array(
        bucket || '_' || left(encode(sha256(convert_to(owner, 'UTF8')), 'hex'), 16) || ' '
        || bucket || replace(words, ' ', ' ' || bucket), ' '), bucket))[1:60000]);
END $function$
"""
# What 0003 has: words in no order, and among them one for the owner, which begins with "_".
WORDS = r"""btrim(regexp_replace(
    array_to_string(tsvector_to_array(terms), ' '), '(^| )_[0-9a-f]{16}( |$)', ' '))"""
# The table is written anew once, whatever changes in it.
KEEP = f"""
ALTER TABLE messages
    ALTER COLUMN turn TYPE integer,
    ALTER COLUMN ordinal TYPE integer,
    ALTER COLUMN sequence_number TYPE integer,
    ALTER COLUMN terms TYPE text USING
        CASE WHEN message_terms(owner, 0, raw, COALESCE({WORDS}, ''))
            IS DISTINCT FROM message_terms(owner, 0, raw, NULL) THEN COALESCE({WORDS}, '') END
"""
OLDER_NUMBERS = """
ALTER TABLE messages
    ALTER COLUMN turn TYPE bigint,
    ALTER COLUMN ordinal TYPE bigint,
    ALTER COLUMN sequence_number TYPE bigint
"""
# In small steps, in which lists grow as they do while people talk: made in one go it is a tenth
# larger. To gather what is common in it would make the terms of many messages, and nobody asks.
INDEX = (
    "SET LOCAL maintenance_work_mem = '16MB'",
    "SET LOCAL max_parallel_maintenance_workers = 0",
    """CREATE INDEX messages_by_terms ON messages
        USING gin (message_terms(owner, number, raw, terms)) WITH (gin_pending_list_limit = 256)""",
    "ALTER INDEX messages_by_terms ALTER COLUMN 1 SET STATISTICS 0",
)
FILL_OLDER = """
UPDATE messages SET older_terms = array_to_tsvector(CAST(:term AS text) || ARRAY(
    SELECT substr(word, 3) FROM unnest(tsvector_to_array(message_terms('', 0, raw, terms))) word
    WHERE word NOT LIKE '0.\\_%'))
WHERE owner = :owner AND message_terms('', 0, raw, terms) IS NOT NULL
"""


def upgrade() -> None:
    op.drop_index("messages_by_sequence", "messages")
    if op.get_bind().dialect.name == "sqlite":
        return
    op.execute("DROP INDEX messages_by_terms")
    op.drop_index("messages_by_number", "messages")
    op.get_bind().exec_driver_sql(TERMS)
    op.get_bind().exec_driver_sql(KEEP)
    op.execute("ALTER TABLE messages RESET (toast_tuple_target)")
    for statement in INDEX:
        op.execute(statement)


def downgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        _bring_back_terms()
    numbered = ["owner", "conversation_id", "sequence_number"]
    op.create_index("messages_by_sequence", "messages", numbered, unique=True)


def _bring_back_terms() -> None:
    bind = op.get_bind()
    op.execute("DROP INDEX messages_by_terms")
    op.execute("ALTER TABLE messages ADD COLUMN older_terms tsvector")
    for owner in bind.execute(sa.text("SELECT DISTINCT owner FROM messages")).scalars().all():
        bind.execute(sa.text(FILL_OLDER), {"owner": owner, "term": owner_term(owner)})
    op.execute("ALTER TABLE messages DROP COLUMN terms")
    op.execute("ALTER TABLE messages RENAME COLUMN older_terms TO terms")
    op.execute("DROP FUNCTION message_terms(text, bigint, text, text)")
    op.execute(OLDER_NUMBERS)
    op.execute("ALTER TABLE messages SET (toast_tuple_target = 4080)")
    op.execute("CREATE INDEX messages_by_terms ON messages USING gin (terms)")
    op.create_index("messages_by_number", "messages", ["owner", "number"], unique=True)
