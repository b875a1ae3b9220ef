"""`--attach`: files beside the prompt arrive at every provider byte for byte, or not at all."""

import base64
import os
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OPENAI = "openai/gpt-test"
ANTHROPIC = "anthropic/claude-sonnet-4-5"
BEDROCK = "bedrock/claude-sonnet-4-5"
AWS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "dummy-0123456789abcdef",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
QUESTION = "What is this?"
MEGABYTE = 1024 * 1024
PHOTO = "https://pictures.example/cats/luna.png?size=large"

all_models = pytest.mark.parametrize(
    "model", [OPENAI, ANTHROPIC, BEDROCK], ids=["openai", "anthropic", "bedrock"]
)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png() -> bytes:
    """One red dot."""
    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + pixels + chunk(b"IEND", b"")


EVERY_BYTE = bytes(range(256)) * 5
IMAGES = {
    "png": png(),
    "jpeg": b"\xff\xd8\xff\xe0" + EVERY_BYTE,
    "gif": b"GIF89a" + EVERY_BYTE,
    "webp": b"RIFF\x24\x05\x00\x00WEBPVP8 " + EVERY_BYTE,
}
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + EVERY_BYTE + b"\n%%EOF\n"


@pytest.fixture
def file(home) -> Callable[..., str]:
    """Puts a file into the folder where the command runs; returns its name."""

    def write(name: str, data: bytes | str) -> str:
        path = home.work / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return name

    return write


@pytest.fixture
def ask(provider, settings, secret, cllm) -> Callable[..., Any]:
    """Asks a model of the fake provider."""
    providers = {
        "openai": {"api_base": provider.url, "api_key": secret},
        "anthropic": {"api_base": provider.root, "api_key": secret},
        "bedrock": {"api_base": provider.root},
    }
    settings(model=OPENAI, api_base=..., api_key=..., providers=providers)

    def ask(*arguments: str, model: str = OPENAI, **options: Any) -> Any:
        return cllm(*arguments, "-m", model, env=AWS if model == BEDROCK else {}, **options)

    return ask


def blocks(provider: Any, number: int = -1) -> list[dict[str, Any]]:
    """The content of the newest message of a request."""
    content: list[dict[str, Any]] = provider.requests[number].messages[-1]["content"]
    return content


def text_in(block: dict[str, Any]) -> str:
    text: str = block["text"]
    return text


def image_in(block: dict[str, Any]) -> tuple[str, bytes]:
    """The format and the bytes of an image, whatever the protocol."""
    if "image_url" in block:
        head, data = block["image_url"]["url"].split(";base64,")
        return head.removeprefix("data:image/"), base64.b64decode(data, validate=True)
    if block.get("type") == "image":
        source = block["source"]
        kind = source["media_type"].removeprefix("image/")
        return kind, base64.b64decode(source["data"], validate=True)
    source = block["image"]["source"]
    return block["image"]["format"], base64.b64decode(source["bytes"], validate=True)


def pdf_in(block: dict[str, Any]) -> bytes:
    if "file" in block:
        head, data = block["file"]["file_data"].split(";base64,")
        assert head == "data:application/pdf"
        return base64.b64decode(data, validate=True)
    if block.get("type") == "document":
        assert block["source"]["media_type"] == "application/pdf"
        return base64.b64decode(block["source"]["data"], validate=True)
    assert block["document"]["format"] == "pdf"
    return base64.b64decode(block["document"]["source"]["bytes"], validate=True)


@all_models
@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_arrives_byte_for_byte(provider, ask, file, model, kind):
    ask(QUESTION, "--attach", file("photo", IMAGES[kind]), model=model).succeeded()

    said, image = blocks(provider)
    assert text_in(said) == QUESTION
    assert image_in(image) == (kind, IMAGES[kind])


@all_models
def test_a_pdf_arrives_byte_for_byte(provider, ask, file, model):
    ask(QUESTION, "-a", file("report.pdf", PDF), model=model).succeeded()

    said, document = blocks(provider)
    assert text_in(said) == QUESTION
    assert pdf_in(document) == PDF
    assert "report" in str(document)


@all_models
def test_a_text_arrives_headed_by_its_name(provider, ask, file, home, model):
    (home.work / "notes").mkdir()
    name = file("notes/cat.md", "\ufeffLuna ist süß.\r\nMiau.\n")

    ask(QUESTION, "-a", name, model=model).succeeded()

    said, text = blocks(provider)
    assert text_in(said) == QUESTION
    wanted = "--- File: cat.md ---\nLuna ist süß.\r\nMiau.\n--- End File ---"
    assert text_in(text) == wanted


@all_models
def test_attachments_are_in_the_order_of_the_options(provider, ask, file, model):
    names = [
        file("a.txt", "first"),
        file("b.png", IMAGES["png"]),
        file("c.pdf", PDF),
        file("d.gif", IMAGES["gif"]),
    ]

    flags = [word for name in names for word in ("-a", name)]
    ask(QUESTION, *flags, model=model).succeeded()

    said, text, image, document, other = blocks(provider)
    assert text_in(said) == QUESTION
    assert "first" in text_in(text)
    assert image_in(image)[0] == "png"
    assert pdf_in(document) == PDF
    assert image_in(other)[0] == "gif"


@all_models
@pytest.mark.parametrize("name", ["photo.png", "report.pdf"])
def test_an_attachment_needs_no_prompt(provider, ask, file, model, name):
    data = {"photo.png": IMAGES["png"], "report.pdf": PDF}[name]

    ask("-a", file(name, data), model=model).succeeded()

    sent = [block for block in blocks(provider) if "text" not in block]
    assert len(sent) == 1
    assert (pdf_in(sent[0]) if name == "report.pdf" else image_in(sent[0])[1]) == data


def test_the_content_decides_the_type_of_a_file(provider, ask, file):
    ask(QUESTION, "-a", file("a.txt", IMAGES["png"]), "-a", file("b.png", "a text")).succeeded()

    _, image, text = blocks(provider)
    assert image_in(image) == ("png", IMAGES["png"])
    assert text_in(text) == "--- File: b.png ---\na text\n--- End File ---"


def test_standard_input_can_be_attached(provider, ask):
    ask(QUESTION, "-a", "-", stdin=IMAGES["jpeg"]).succeeded()

    said, image = blocks(provider)
    assert text_in(said) == QUESTION
    assert image_in(image) == ("jpeg", IMAGES["jpeg"])


def test_standard_input_is_sent_with_an_attachment(provider, ask, file):
    ask(QUESTION, "-a", file("a.png", IMAGES["png"]), stdin=b"Be brief.\n").succeeded()

    assert text_in(blocks(provider)[0]) == f"{QUESTION}\nBe brief."


def test_an_image_on_standard_input_is_an_error_that_names_attach(provider, ask):
    ask(QUESTION, stdin=IMAGES["png"]).failed_with_one_sentence("not text", "--attach -")

    assert provider.requests == []


def test_the_address_of_an_image_is_handed_on_and_not_fetched(provider, ask):
    ask(QUESTION, "-a", PHOTO).succeeded()
    assert blocks(provider)[1] == {"type": "image_url", "image_url": {"url": PHOTO}}

    ask(QUESTION, "-a", PHOTO, model=ANTHROPIC).succeeded()
    assert blocks(provider)[1]["source"] == {"type": "url", "url": PHOTO}
    assert len(provider.requests) == 2


def test_bedrock_says_that_it_takes_no_image_by_its_address(provider, ask):
    ask(QUESTION, "-a", PHOTO, model=BEDROCK).failed_with_one_sentence("Bedrock", "URL")

    assert provider.requests == []


@all_models
def test_a_conversation_keeps_it_in_openai_s_words_and_sends_it_again(
    provider, home, ask, file, model
):
    photo, report = file("photo.png", IMAGES["png"]), file("report.pdf", PDF)
    ask(QUESTION, "-a", photo, "-a", report, "--conversation", "demo", model=model).succeeded()
    (home.work / photo).unlink()

    ask("And who?", "--conversation", "demo", model=model).succeeded()

    kept = home.load("demo")
    assert kept["messages"][0] == {
        "role": "user",
        "content": [
            {"type": "text", "text": QUESTION},
            {"type": "image_url", "image_url": {"url": data_url("image/png", IMAGES["png"])}},
            {
                "type": "file",
                "file": {
                    "filename": "report.pdf",
                    "file_data": data_url("application/pdf", PDF),
                },
            },
        ],
    }
    first, again = provider.requests[0].messages[0], provider.requests[1].messages[0]
    assert without_marks(again) == without_marks(first)
    assert text_of(provider.requests[1].messages[-1]) == "And who?"


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def without_marks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks without where a provider is to cache."""
    return [
        {key: value for key, value in block.items() if key != "cache_control"}
        for block in message["content"]
        if "cachePoint" not in block
    ]


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(b.get("text", "") for b in content)


def test_showing_a_conversation_shows_no_base64(ask, cllm, file):
    photo, report = file("photo.png", IMAGES["png"]), file("report.pdf", PDF)
    ask(QUESTION, "-a", photo, "-a", report, "-a", PHOTO, "--conversation", "demo").succeeded()

    shown = cllm("--show-conversation", "demo").succeeded().out

    lines = [
        "[user]",
        QUESTION,
        f"[image: image/png, {len(IMAGES['png'])} bytes]",
        f"[file: report.pdf, {len(PDF):,} bytes]",
        f"[image: {PHOTO}]",
    ]
    assert "\n".join(lines) in shown
    assert "base64" not in shown


def test_the_title_is_the_text_of_the_prompt(ask, cllm, file):
    ask(QUESTION, "-a", file("notes.txt", "Luna"), "--conversation", "demo").succeeded()

    assert QUESTION in cllm("--list-conversations").succeeded().out


def test_context_is_before_the_text(provider, ask, file):
    ask(QUESTION, "-a", file("a.png", IMAGES["png"]), "--exec", "echo Tuesday").succeeded()

    context, said, image = blocks(provider)
    assert "Tuesday" in text_in(context)
    assert text_in(said) == QUESTION
    assert image_in(image)[1] == IMAGES["png"]


@pytest.mark.parametrize(
    ("name", "data", "word"),
    [
        pytest.param("photo.png", IMAGES["png"], "image", id="image"),
        pytest.param("report.pdf", PDF, "file", id="pdf"),
    ],
)
def test_the_local_model_says_that_it_reads_text_only(
    home, cllm, file, local_model, name, data, word
):
    question = (QUESTION, "-a", file(name, data), "--conversation", "demo")

    result = cllm(*question, "-m", f"local/{local_model}")

    result.failed_with_one_sentence("reads text only", word, "-m")
    assert not home.file("demo").exists()


def make_large(path: Path) -> None:
    with path.open("wb") as file:
        file.write(png())
        file.truncate(20 * MEGABYTE + 1)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "missing": lambda _: None,
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "empty": Path.touch,
    "loop": lambda path: path.symlink_to(path),
    "large": make_large,
    "binary": lambda path: path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(200)),
    "latin1": lambda path: path.write_bytes("süß".encode("latin-1")),
    "utf16": lambda path: path.write_bytes("a text".encode("utf-16")),
    "tiff": lambda path: path.write_bytes(b"II*\x00" + EVERY_BYTE),
}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param(kind, words, id=kind)
        for kind, words in {
            "missing": ("no such file",),
            "fifo": ("not a regular file",),
            "folder": ("is a directory",),
            "empty": ("empty",),
            "loop": ("cannot be read",),
            "large": ("larger than 20 MiB",),
            "binary": ("PNG, JPEG, GIF or WebP", "PDF", "UTF-8"),
            "latin1": ("UTF-8",),
            "utf16": ("UTF-8",),
            "tiff": ("PNG, JPEG, GIF or WebP",),
        }.items()
    ],
)
def test_an_unusable_attachment_is_one_sentence(provider, home, ask, kind, words):
    HOSTILE[kind](home.work / "thing")
    before = home.snapshot()

    result = ask(QUESTION, "-a", "thing", "--conversation", "demo")

    result.failed_with_one_sentence("thing", *words)
    assert provider.requests == []
    assert home.snapshot() == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("/dev/zero", ("not a regular file",), id="without end"),
        pytest.param("/proc/self/mem", ("cannot be read",), id="memory"),
        pytest.param("", ("no such file",), id="no name"),
        pytest.param("a" * 5000, ("cannot be read", "…"), id="long name"),
        pytest.param("two\nlines\x1b[2J", ("two lines",), id="control characters"),
        pytest.param("-", ("standard input", "empty"), id="empty standard input"),
        pytest.param("http://pictures.example/a.png", ("https",), id="http"),
        pytest.param("file:///etc/passwd", ("https", "download"), id="file address"),
        pytest.param("ftp://pictures.example/a.png", ("https", "download"), id="ftp"),
        pytest.param("https://papers.example/a.pdf", ("images", "download"), id="pdf address"),
        pytest.param("https://papers.example/", ("images", "download"), id="page"),
        pytest.param("https://", ("https", "download"), id="no host"),
        pytest.param("https://[half/a.png", ("https", "download"), id="no address"),
        pytest.param("https://x.example/a b\n.png", ("https", "download"), id="white space"),
    ],
)
def test_a_name_that_leads_nowhere_is_one_sentence(provider, ask, name, words):
    line = ask(QUESTION, "-a", name).failed_with_one_sentence(*words)

    assert "\x1b" not in line
    assert len(line) < 300
    assert provider.requests == []


def test_an_address_with_a_password_is_refused_without_showing_it(provider, ask):
    line = ask(QUESTION, "-a", "https://me:hunter2@x.example/a.png").failed_with_one_sentence(
        "password", "x.example"
    )

    assert "hunter2" not in line
    assert provider.requests == []


def test_attachments_have_a_limit_together(provider, ask, home):
    for name in ("a", "b"):
        with (home.work / name).open("wb") as file:
            file.write(png())
            file.truncate(17 * MEGABYTE)

    ask(QUESTION, "-a", "a", "-a", "b").failed_with_one_sentence("32 MiB in total")

    assert provider.requests == []


def test_attachments_have_a_greatest_number(provider, ask, file):
    flags = ["-a", file("a.txt", "a")] * 21

    ask(QUESTION, *flags).failed_with_one_sentence("at most 20", "21")
    assert provider.requests == []

    ask(QUESTION, *flags[2:]).succeeded()
    assert len(blocks(provider)) == 21


def test_the_largest_file_goes_through(provider, ask, file):
    data = png().ljust(20 * MEGABYTE, b"\xa5")

    ask(QUESTION, "-a", file("large.png", data)).succeeded()

    assert image_in(blocks(provider)[1]) == ("png", data)


def test_the_shell_completes_file_names(home, cllm):
    words = {
        "_CLLM_COMPLETE": "bash_complete",
        "COMP_WORDS": "cllm --attach pho",
        "COMP_CWORD": "2",
    }
    cllm.command = (str(Path(sys.executable).with_name("cllm")),)

    assert cllm(env=words).succeeded().out.startswith("file,")
