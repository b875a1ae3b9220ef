"""Attachments: the images, files and other blocks that a provider accepts.

A rule applies to every message alike; only the consequence differs. An attachment that the
provider refuses is an error in the newest user message. Anywhere else it is replaced by a
placeholder with a notice, so that a past attachment never blocks a conversation.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, Literal, TypeVar

import msgspec

from cllm.core.message import AnyPart, Dialect, Document, Image, Text, ToolResult, Unknown
from cllm.core.notice import Notice
from cllm.wire.errors import MalformedError, NotExpressibleError
from cllm.wire.messages import NoticeMerger, OutgoingMessage, replace_parts, shorten

Attachment = Image | Document | Unknown
File = TypeVar("File", Image, Document)
MediaKind = Literal["image", "file", "other"]

IMAGE_FORMATS = {
    "image/jpeg": "jpeg",
    "image/png": "png",
    "image/gif": "gif",
    "image/webp": "webp",
}
DOCUMENT_FORMATS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
OTHER_NAMES = {
    "image/jpg": "image/jpeg",
    "application/csv": "text/csv",
    "text/x-markdown": "text/markdown",
}
_TYPES = {name: kind for kind, name in (*IMAGE_FORMATS.items(), *DOCUMENT_FORMATS.items())}
_TYPES |= {"jpg": "image/jpeg", "htm": "text/html"}
_TEXT_TYPE = re.compile(r"text/.+|application/(.+\+)?(json|xml|yaml|x-yaml|javascript|sql|toml)")
_DATA_URL = re.compile(r"data:([^,]*);base64,")
_BLOCK_KINDS = {
    "audio": "audio",
    "container_upload": "a file",
    "file": "a file",
    "image": "an image",
    "input_audio": "audio",
    "video": "a video",
    "video_url": "a video",
}
_KIND_NAMES: dict[type[Attachment], MediaKind] = {
    Image: "image",
    Document: "file",
    Unknown: "other",
}
PDF = "application/pdf"
S3 = "s3://"
HTTPS = "https://"
WEB = (HTTPS, "http://")
EVERYTHING: frozenset[MediaKind] = frozenset(("image", "file", "other"))
OPENAI_FILES: frozenset[Dialect] = frozenset(("openai", "responses"))


class MediaRule(msgspec.Struct, frozen=True, kw_only=True):
    """The attachments that a provider accepts in its protocol, `dialect`.

    `image_types` and `file_types` are the media types of data, None for any; `image_urls` and
    `file_urls` the starts of accepted URLs; `file_ids` the protocols whose file IDs it can read.
    `passes_own`: the provider itself judges the newest message if it is in its own protocol.
    """

    provider: str
    dialect: Dialect
    reads: frozenset[MediaKind] = EVERYTHING
    image_types: frozenset[str] | None = frozenset(IMAGE_FORMATS)
    image_urls: tuple[str, ...] = WEB
    file_types: frozenset[str] | None = None
    file_urls: tuple[str, ...] = ()
    file_ids: frozenset[Dialect] = frozenset()
    passes_own: bool = True


ANTHROPIC = MediaRule(
    provider="Anthropic",
    dialect="anthropic",
    image_urls=(HTTPS,),
    file_types=frozenset({PDF}),
    file_urls=(HTTPS,),
    file_ids=frozenset({"anthropic"}),
)
BEDROCK = MediaRule(
    provider="Bedrock",
    dialect="bedrock",
    image_urls=(S3,),
    file_types=frozenset(DOCUMENT_FORMATS),
    file_urls=(S3,),
)
RESPONSES = MediaRule(provider="OpenAI", dialect="responses", file_urls=WEB, file_ids=OPENAI_FILES)
OPENAI_CHAT = MediaRule(
    provider="OpenAI's Chat Completions API",
    dialect="openai",
    file_types=frozenset({PDF}),
    file_ids=OPENAI_FILES,
)
COMPATIBLE = MediaRule(
    provider="Chat Completions", dialect="openai", image_types=None, file_ids=OPENAI_FILES
)
"""An OpenAI-compatible server: everything that the protocol has."""
IMAGES_ONLY = msgspec.structs.replace(
    COMPATIBLE, provider="The server", reads=frozenset({"image"}), passes_own=False
)
TEXT_ONLY = msgspec.structs.replace(IMAGES_ONLY, provider="The model", reads=frozenset())
NAMED_RULES: Mapping[str, MediaRule] = {
    "all": COMPATIBLE,
    "images": IMAGES_ONLY,
    "none": TEXT_ONLY,
    "openai": OPENAI_CHAT,
}
"""The rules that a provider's settings can name."""


class MediaError(MalformedError):
    """An attachment that the provider refuses."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}: {advice}.")
        self.reason = reason


def fit_media(
    messages: Sequence[OutgoingMessage], rule: MediaRule
) -> tuple[tuple[OutgoingMessage, ...], tuple[Notice, ...]]:
    """Return the messages with the attachments that the rule accepts, and notices.

    Raises NotExpressibleError for a refused one in the newest user message. The content of a tool
    result is never an error: the model called the tool, and reads the placeholder as its result.
    """
    notes = NoticeMerger()
    newest = find_newest(messages)
    fitted = [
        message
        if message.role == "system"
        else _fit_message(message, rule, notes, is_newest=index == newest)
        for index, message in enumerate(messages)
    ]
    return tuple(fitted), notes.notices()


def find_newest(messages: Sequence[OutgoingMessage]) -> int | None:
    """Return the index of the user message that the model replies to; None in a tool loop.

    The last message can be the prefill of the reply.
    """
    is_prefilled = bool(messages) and messages[-1].role == "assistant"
    for index in range(len(messages) - 1 - is_prefilled, -1, -1):
        message = messages[index]
        if message.role == "assistant":
            return None
        if message.role == "user" and any(type(part) is not ToolResult for part in message.parts):
            return index
    return None


def _fit_message(
    message: OutgoingMessage, rule: MediaRule, notes: NoticeMerger, *, is_newest: bool
) -> OutgoingMessage:
    if message.raw is not None and (message.role == "assistant" or (is_newest and rule.passes_own)):
        return message
    parts = list(message.parts)
    for index, part in enumerate(message.parts):
        path = f"messages[{message.prompt_index}].content[{index}]"
        if isinstance(part, ToolResult):
            parts[index] = _fit_result(part, message, rule, path, notes)
        elif isinstance(part, Attachment):
            try:
                parts[index] = _fit_part(part, message, rule)
            except MediaError as error:
                if is_newest:
                    raise NotExpressibleError(f"{path}: {error}") from error
                parts[index] = _replace_part(part, error, path, notes)
    same = all(map(is_, parts, message.parts))
    return message if same else replace_parts(message, parts)


def _fit_result(
    result: ToolResult, message: OutgoingMessage, rule: MediaRule, path: str, notes: NoticeMerger
) -> ToolResult:
    content: list[Any] = list(result.content)
    for index, part in enumerate(result.content):
        if not isinstance(part, Text):
            try:
                content[index] = _fit_part(part, message, rule)
            except MediaError as error:
                content[index] = _replace_part(part, error, path, notes)
    same = all(map(is_, content, result.content))
    return result if same else msgspec.structs.replace(result, content=tuple(content))


def _replace_part(part: Attachment, error: MediaError, path: str, notes: NoticeMerger) -> Text:
    if not isinstance(part, Unknown) and (part.url or "").startswith(WEB):
        notes.add("part_changed", path, f"{error.reason}; its URL is sent as text.")
    else:
        notes.add("part_left_out", path, f"{error.reason}; a placeholder text is sent.")
    return Text(text=f"({_describe(part)}, which this model cannot see)", cache=part.cache)


def _describe(part: Attachment) -> str:
    if isinstance(part, Unknown):
        kind = _block_type(part)
        return _BLOCK_KINDS.get(kind, f"a block of type {kind}" if kind else "a block")
    noun, name = ("a file", part.name) if isinstance(part, Document) else ("an image", None)
    name = part.url if (part.url or "").startswith(WEB) else name
    return f"the {noun.split()[1]} {shorten(' '.join(name.split()))}" if name else noun


def _block_type(part: Unknown) -> str:
    """Return the type of a block; Bedrock names it by the only key."""
    fields = msgspec.json.decode(part.raw)
    if not isinstance(fields, dict):
        return ""
    return str(next(iter(fields), "") if part.dialect == "bedrock" else fields.get("type") or "")


def _fit_part(part: Attachment, message: OutgoingMessage, rule: MediaRule) -> AnyPart:
    """Return an attachment in the form in which it is sent; raises MediaError if refused."""
    if isinstance(part, Unknown):
        # Other blocks of a reply are not attachments: tools that the provider itself runs.
        if message.role != "assistant":
            _check_block(part, rule)
        return part
    if isinstance(part, Document) and part.text is not None:
        return part
    if message.role == "assistant":
        reason = f"{rule.provider} accepts images and files in user messages only"
        raise MediaError(reason, "send it in a user message")
    is_foreign = message.raw is None
    if isinstance(part, Document):
        document = _normalize(part) if is_foreign else part
        return _fit_document(document, message.dialect, rule)
    image = _normalize(part) if is_foreign else part
    _check_reads(image, rule)
    _check_image(image, message.dialect, rule)
    return image


def _check_block(part: Unknown, rule: MediaRule) -> None:
    if part.dialect != rule.dialect:
        reason = f"{rule.provider} has no block for {_describe(part)} of another protocol"
        raise MediaError(reason, "send it as text, or omit it")
    _check_reads(part, rule)


def _check_reads(part: Attachment, rule: MediaRule) -> None:
    kind = _KIND_NAMES[type(part)]
    if kind in rule.reads:
        return
    if not rule.reads:
        reason = f"{rule.provider} reads text only and cannot read {_describe(part)}"
    else:
        noun = _describe(part) if kind == "other" else f"{kind}s"
        reason = f"{rule.provider} does not accept {noun}"
    raise MediaError(reason, "use another model, for example: -m openai/gpt-4o")


def _normalize(part: File) -> File:
    """Return a foreign file with the usual media type, and its data without line breaks."""
    url = part.url or ""
    match = _DATA_URL.match(url) if part.data is None else None
    if match is not None:
        data = url[match.end() :]
        part = msgspec.structs.replace(part, url=None, media_type=match[1], data=data)
    if part.data is None:
        return part
    data, kind = "".join(part.data.split()), find_media_type(part)
    if not data or not is_base64(data):
        noun = type(part).__name__.lower()
        raise MediaError(f"the data of the {noun} is not base64", "encode its bytes")
    if isinstance(part, Image) and not kind:
        raise MediaError("the image has no media type", "send it as data:image/png;base64,…")
    if data == part.data and kind == part.media_type:
        return part
    return msgspec.structs.replace(part, data=data, media_type=kind or part.media_type)


def _check_image(part: Image, source: Dialect | None, rule: MediaRule) -> None:
    if part.data is None and part.url is None:
        if rule.dialect == source == "responses":
            return
        raise _file_id_error("an image", part.extra.get("file_id"), rule)
    if part.url is not None and part.data is None:
        _check_url(part.url, "an image", rule.image_urls, rule)
    kind = find_media_type(part)
    # The type of an image on the web is not known before it is fetched.
    is_checked = part.data is not None or (part.url or "").startswith(S3)
    if is_checked and rule.image_types is not None and kind not in rule.image_types:
        formats = ", ".join(IMAGE_FORMATS.values())
        reason = f"{rule.provider} does not accept images of type {kind or 'unknown'}"
        raise MediaError(reason, f"convert it to one of {formats}")


def _fit_document(part: Document, source: Dialect | None, rule: MediaRule) -> Document:
    kind = find_media_type(part)
    is_accepted = "file" in rule.reads and (rule.file_types is None or kind in rule.file_types)
    if part.data is not None and not is_accepted:
        text = _decode_text(part.data) if _TEXT_TYPE.fullmatch(kind) else None
        if text is not None:
            return msgspec.structs.replace(part, data=None, text=text, media_type="text/plain")
    _check_reads(part, rule)
    if part.data is None and part.url is not None:
        _check_url(part.url, "a document", rule.file_urls, rule)
    elif part.data is None and (part.file_id is None or source not in rule.file_ids):
        raise _file_id_error("a document", part.file_id, rule)
    is_checked = part.data is not None or (part.url or "").startswith(S3)
    if is_checked and not is_accepted:
        reason = f"{rule.provider} does not accept documents of type {kind or 'unknown'}"
        raise MediaError(reason, "convert it to PDF or text")
    return part


def _check_url(url: str, noun: str, accepted: tuple[str, ...], rule: MediaRule) -> None:
    if url.startswith(accepted):
        return
    upload = ", or upload it to S3 and send the s3:// URL" if S3 in accepted else ""
    name = "its URL" if url.startswith(WEB) else f"the URL {shorten(url)}"
    reason = f"{rule.provider} does not accept {noun} by {name}"
    raise MediaError(reason, f"send its data in base64{upload}")


def _file_id_error(noun: str, file_id: Any, rule: MediaRule) -> MediaError:
    if not isinstance(file_id, str):
        return MediaError(f"{noun} has no data, URL or file ID", "add one")
    reason = f"{rule.provider} does not accept {noun} by the file ID {shorten(file_id)}"
    return MediaError(reason, "send its data in base64")


def _decode_text(data: str) -> str | None:
    try:
        return base64.b64decode(data).decode()
    except ValueError:
        return None


def find_media_type(part: Image | Document) -> str:
    """Return the media type of a file, else the type of its file extension, else empty."""
    kind = normalize_media_type(part.media_type)
    if kind in IMAGE_FORMATS or kind in DOCUMENT_FORMATS:
        return kind
    name = part.url or (part.name if isinstance(part, Document) else None) or ""
    return _TYPES.get(name.rpartition(".")[2].lower(), kind)


def normalize_media_type(media_type: str | None) -> str:
    """Return a media type in lower case, under its usual name, without parameters."""
    plain = (media_type or "").partition(";")[0].strip().lower()
    return OTHER_NAMES.get(plain, plain)


def is_base64(data: str) -> bool:
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return False
    return True
