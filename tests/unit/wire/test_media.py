"""Attachments by the rules of each provider: refused in the newest message, replaced elsewhere."""

import base64
import json

import msgspec
import pytest

from cllm.core.message import (
    AnyPart,
    Dialect,
    Document,
    Image,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.errors import NotExpressibleError
from cllm.wire.media import (
    ANTHROPIC,
    BEDROCK,
    COMPATIBLE,
    IMAGES_ONLY,
    OPENAI_CHAT,
    RESPONSES,
    TEXT_ONLY,
    MediaRule,
    find_newest,
    fit_media,
    normalize_media_type,
)
from cllm.wire.messages import OutgoingMessage

DATA = base64.b64encode(b"data").decode()
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PNG = Image(media_type="image/png", data=DATA)
BMP = Image(media_type="image/bmp", data=DATA)
SVG = Image(media_type="image/svg+xml", data=DATA)
WEB_IMAGE = Image(url="https://x.example/a.png")
PDF = Document(media_type="application/pdf", data=DATA, name="a.pdf")
WORD = Document(media_type=DOCX, data=DATA, name="a.docx")
WEB_PDF = Document(url="https://x.example/a.pdf")
FILE = Document(file_id="file-1")
CSV = Document(media_type="text/csv", data=base64.b64encode(b"a,b").decode(), name="a.csv")
AUDIO = Unknown(
    dialect="openai", raw=json.dumps({"type": "input_audio", "input_audio": {}}).encode()
)
VIDEO = Unknown(dialect="bedrock", raw=b'{"video":{}}')
FILE_IMAGE = Unknown(
    dialect="anthropic",
    raw=json.dumps({"type": "image", "source": {"type": "file", "file_id": "f"}}).encode(),
)
RULES = (ANTHROPIC, BEDROCK, OPENAI_CHAT, RESPONSES)
REFUSED: list[tuple[MediaRule, AnyPart, Dialect]] = [
    *((rule, part, "openai") for rule in RULES for part in (BMP, SVG)),
    (ANTHROPIC, WORD, "openai"),
    (ANTHROPIC, FILE, "openai"),
    (ANTHROPIC, AUDIO, "openai"),
    (ANTHROPIC, VIDEO, "bedrock"),
    (BEDROCK, WEB_IMAGE, "openai"),
    (BEDROCK, WEB_PDF, "anthropic"),
    (BEDROCK, FILE, "anthropic"),
    (BEDROCK, AUDIO, "openai"),
    (OPENAI_CHAT, WORD, "anthropic"),
    (OPENAI_CHAT, WEB_PDF, "anthropic"),
    (OPENAI_CHAT, FILE, "anthropic"),
    (OPENAI_CHAT, FILE_IMAGE, "anthropic"),
    (RESPONSES, FILE, "anthropic"),
    (RESPONSES, AUDIO, "openai"),
    (COMPATIBLE, WEB_PDF, "responses"),
    (COMPATIBLE, Image(data=DATA), "anthropic"),
    (COMPATIBLE, Image(extra={"file_id": "file-1"}), "responses"),
    (IMAGES_ONLY, PDF, "anthropic"),
    (TEXT_ONLY, PNG, "anthropic"),
    *((rule, Image(media_type="image/png", data="%%"), "openai") for rule in (ANTHROPIC, BEDROCK)),
]
ACCEPTED: list[tuple[MediaRule, AnyPart, Dialect]] = [
    *((rule, part, "openai") for rule in (*RULES, COMPATIBLE) for part in (PNG, PDF)),
    *((rule, Document(text="plain"), "anthropic") for rule in (*RULES, TEXT_ONLY)),
    (ANTHROPIC, WEB_IMAGE, "openai"),
    (ANTHROPIC, WEB_PDF, "responses"),
    (BEDROCK, WORD, "openai"),
    (BEDROCK, CSV, "openai"),
    (BEDROCK, Image(url="s3://bucket/a.png"), "openai"),
    (OPENAI_CHAT, FILE, "responses"),
    (RESPONSES, WORD, "openai"),
    (RESPONSES, WEB_PDF, "anthropic"),
    (RESPONSES, Image(extra={"file_id": "file-1"}), "responses"),
    (COMPATIBLE, BMP, "openai"),
    (IMAGES_ONLY, PNG, "anthropic"),
]


def message(role: Role, *parts: AnyPart, index: int = 0, dialect: Dialect = "openai", own=False):
    return OutgoingMessage(
        role=role,
        parts=parts,
        prompt_index=index,
        dialect=dialect,
        raw=b"{}" if own else None,
    )


ANSWER = message("assistant", Text(text="I see."), index=1)
MORE = message("user", Text(text="And now?"), index=2)


@pytest.mark.parametrize(("rule", "part", "dialect"), REFUSED)
def test_a_refused_attachment_is_an_error_in_the_newest_message(rule, part, dialect):
    newest = message("user", Text(text="Look"), part, index=4, dialect=dialect)

    with pytest.raises(NotExpressibleError, match=r"^messages\[4\]\.content\[1\]: "):
        fit_media((newest,), rule)


@pytest.mark.parametrize(("rule", "part", "dialect"), REFUSED)
def test_a_refused_attachment_is_a_placeholder_in_the_history(rule, part, dialect):
    past = message("user", Text(text="Look"), part, dialect=dialect)

    fitted, notices = fit_media((past, ANSWER, MORE), rule)

    text = fitted[0].parts[1]
    assert isinstance(text, Text)
    assert text.text.endswith(", which this model cannot see)")
    assert [notice.path for notice in notices] == ["messages[0].content[1]"]
    assert fitted[1:] == (ANSWER, MORE)


@pytest.mark.parametrize(("rule", "part", "dialect"), ACCEPTED)
@pytest.mark.parametrize("is_past", [False, True])
def test_an_accepted_attachment_is_sent(rule, part, dialect, is_past):
    messages = (message("user", part, dialect=dialect), *((ANSWER, MORE) if is_past else ()))

    assert fit_media(messages, rule) == (messages, ())


@pytest.mark.parametrize("rule", [ANTHROPIC, OPENAI_CHAT, IMAGES_ONLY, TEXT_ONLY])
def test_a_text_file_is_sent_as_text_where_its_type_is_not_accepted(rule):
    ((fitted,), notices) = fit_media((message("user", CSV),), rule)

    assert fitted.parts == (Document(media_type="text/plain", text="a,b", name="a.csv"),)
    assert notices == ()


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (BMP, "(an image, which this model cannot see)"),
        (WEB_IMAGE, "(the image https://x.example/a.png, which this model cannot see)"),
        (PDF, "(the file a.pdf, which this model cannot see)"),
        (FILE, "(a file, which this model cannot see)"),
        (AUDIO, "(audio, which this model cannot see)"),
        (VIDEO, "(a video, which this model cannot see)"),
        (FILE_IMAGE, "(an image, which this model cannot see)"),
    ],
)
def test_a_placeholder_names_the_attachment(part, expected):
    fitted, _ = fit_media((message("user", part), ANSWER, MORE), TEXT_ONLY)

    assert fitted[0].parts == (Text(text=expected),)


def test_a_replaced_web_address_is_reported_as_a_change():
    _, notices = fit_media((message("user", WEB_IMAGE), ANSWER, MORE), BEDROCK)

    assert [notice.code for notice in notices] == ["part_changed"]


def test_one_notice_counts_equal_replacements():
    past = message("user", BMP, BMP)

    _, (notice,) = fit_media((past, ANSWER, MORE), ANTHROPIC)

    assert notice.code == "part_left_out"
    assert notice.message.endswith("(2 times)")


def test_a_tool_result_is_never_an_error():
    call = message("assistant", ToolCall(id="1", name="f", arguments="{}"))
    result = message("user", ToolResult(call_id="1", content=(Text(text="Done"), BMP)))

    fitted, notices = fit_media((MORE, call, result), ANTHROPIC)

    (part,) = fitted[2].parts
    assert isinstance(part, ToolResult)
    assert part.content[1] == Text(text="(an image, which this model cannot see)")
    assert [notice.code for notice in notices] == ["part_left_out"]


def test_a_file_in_a_reply_is_replaced():
    fitted, notices = fit_media((MORE, message("assistant", PNG), MORE), ANTHROPIC)

    assert fitted[1].parts == (Text(text="(an image, which this model cannot see)"),)
    assert [notice.code for notice in notices] == ["part_left_out"]


def test_the_provider_itself_judges_the_newest_message_in_its_own_protocol():
    newest = message("user", BMP, dialect="anthropic", own=True)

    assert fit_media((newest,), ANTHROPIC) == ((newest,), ())


def test_a_text_model_refuses_the_newest_message_in_its_own_protocol():
    with pytest.raises(NotExpressibleError, match="reads text only"):
        fit_media((message("user", PNG, own=True),), TEXT_ONLY)


def test_a_past_message_in_the_own_protocol_is_judged_by_the_same_rule():
    past = message("user", BMP, dialect="anthropic", own=True)

    fitted, notices = fit_media((past, ANSWER, MORE), ANTHROPIC)

    assert fitted[0].raw is None
    assert [notice.code for notice in notices] == ["part_left_out"]


def test_a_past_image_without_a_media_type_stays_in_the_own_protocol():
    past = message("user", Image(media_type="", data=DATA), own=True)

    assert fit_media((past, ANSWER, MORE), COMPATIBLE) == ((past, ANSWER, MORE), ())


def test_line_breaks_are_removed_from_data():
    part = msgspec.structs.replace(PNG, data=f"{DATA[:4]}\n{DATA[4:]}\n")

    ((fitted,), _) = fit_media((message("user", part),), ANTHROPIC)

    assert fitted.parts == (PNG,)


def test_a_data_url_is_split():
    part = Image(url=f"data:image/jpg;base64,{DATA}")

    ((fitted,), _) = fit_media((message("user", part, dialect="anthropic"),), BEDROCK)

    assert fitted.parts == (Image(media_type="image/jpeg", data=DATA),)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((), None),
        ((MORE,), 0),
        ((MORE, MORE), 1),
        ((MORE, ANSWER), 0),
        ((MORE, ANSWER, MORE, message("system", Text(text="Be brief."))), 2),
        ((MORE, ANSWER, message("tool", ToolResult(call_id="1"))), None),
        ((MORE, ANSWER, message("user", ToolResult(call_id="1"), Text(text="Go"))), 2),
    ],
)
def test_the_newest_message_is_the_last_user_message_without_an_answer(messages, expected):
    assert find_newest(messages) == expected


@pytest.mark.parametrize(
    ("media_type", "expected"),
    [
        ("image/JPG", "image/jpeg"),
        ("text/plain; charset=utf-8", "text/plain"),
        ("application/csv", "text/csv"),
        (None, ""),
    ],
)
def test_media_types_have_one_name(media_type, expected):
    assert normalize_media_type(media_type) == expected
