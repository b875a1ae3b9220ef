"""The provider for Amazon Bedrock's Converse API.

botocore finds credentials, signs requests (SigV4) and parses frames; it does no HTTP.
"""

import asyncio
import struct
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import botocore.exceptions
import botocore.session
import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.eventstream import EventStreamBuffer, EventStreamMessage, ParserError

from cllm.core.errors import (
    AuthenticationError,
    InvalidRequestError,
    ModelNotFoundError,
    PermissionDeniedError,
)
from cllm.core.ports import TokenCount
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent, ReplyFinished
from cllm.providers.history import cache_control_for, repair_for
from cllm.providers.http.provider import (
    HttpProvider,
    ProviderRequest,
    StreamReader,
    check_key,
    clean_message,
)
from cllm.providers.http.transport import HttpResponse, HttpTransport, Timeouts
from cllm.wire.bedrock import response_decoder as bedrock_decoder
from cllm.wire.bedrock.models import UnknownModelError, resolve_model_id, strip_geography
from cllm.wire.bedrock.request import encode_count
from cllm.wire.convert import encode_bedrock
from cllm.wire.errors import ErrorDetails, MalformedError, ReportedError

BEARER_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"
DEFAULT_REGION = "us-east-1"
# A frame: total length, length of the headers, checksum of both; headers, payload, checksum.
_prelude = struct.Struct("!II")
PRELUDE_BYTES = 12
EMPTY_FRAME_BYTES = 16
AWS_ERRORS = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError)


class AwsAccount(msgspec.Struct, frozen=True, kw_only=True):
    region: str = DEFAULT_REGION
    profile: str | None = None
    endpoint_url: str | None = None
    bearer: str | None = None

    @property
    def base_url(self) -> str:
        return (self.endpoint_url or f"https://bedrock-runtime.{self.region}.amazonaws.com").rstrip(
            "/"
        )


class BedrockProvider(HttpProvider):
    def __init__(
        self,
        *,
        name: str,
        account: AwsAccount,
        http: HttpTransport,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        super().__init__(name=name, secrets=(account.bearer,), headers=headers, timeouts=timeouts)
        self._http = http
        self._account = account
        self._own_secrets = self._secrets
        self._credentials: Any = None

    async def prepare(self) -> None:
        if self._account.bearer is None and self._credentials is None:
            self._credentials = await asyncio.to_thread(self._find_credentials)

    def _encode(self, prompt: Prompt) -> ProviderRequest:
        try:
            model = resolve_model_id(prompt.model, region=self._account.region)
        except UnknownModelError as error:
            raise ModelNotFoundError(f"{error}", model=prompt.model) from error
        repair = repair_for("bedrock", model, provider=self.name)
        cache_control = cache_control_for("bedrock", model, prompt.continuity)
        prompt = msgspec.structs.replace(prompt, model=model)
        encoded = encode_bedrock(prompt, repair=repair, cache_control=cache_control)
        action = "converse-stream" if prompt.stream else "converse"
        url = f"{self._account.base_url}/model/{quote(model, safe='')}/{action}"
        return ProviderRequest(
            url=url, body=encoded.body, notices=encoded.notices, names=encoded.names
        )

    async def count_tokens(self, prompt: Prompt) -> TokenCount | None:
        """Count by the bare model id: Bedrock does not count for inference profiles."""
        request = self._build_request(msgspec.structs.replace(prompt, stream=False))
        model = strip_geography(resolve_model_id(prompt.model, region=self._account.region))
        count_request = msgspec.structs.replace(
            request,
            url=f"{self._account.base_url}/model/{quote(model, safe='')}/count-tokens",
            body=encode_count(request.body),
        )
        try:
            body = await self._fetch(count_request)
        except (InvalidRequestError, PermissionDeniedError):
            return None
        tokens = self._parse_token_count(body, "inputTokens")
        return TokenCount(tokens=tokens, notices=request.notices)

    async def _request_headers(self, request: ProviderRequest) -> dict[str, str]:
        headers = {"Content-Type": "application/json", **self._headers}
        if self._account.bearer is not None:
            check_key(self._account.bearer, provider=self.name)
            return headers | {"Authorization": f"Bearer {self._account.bearer}"}
        await self.prepare()
        # Signing can refresh the credentials, which blocks.
        return await asyncio.to_thread(self._sign, request, headers)

    def _sign(self, request: ProviderRequest, headers: dict[str, str]) -> dict[str, str]:
        aws_request = AWSRequest(method="POST", url=request.url, data=request.body, headers=headers)
        try:
            frozen = self._credentials.get_frozen_credentials()
            self._secrets = (*self._own_secrets, frozen.secret_key, frozen.token)
            SigV4Auth(frozen, "bedrock", self._account.region).add_auth(aws_request)
        except AWS_ERRORS as error:
            raise self._credentials_error(str(error)) from error
        return {str(name): str(value) for name, value in aws_request.headers.items()}

    def _find_credentials(self) -> Any:
        try:
            session = botocore.session.Session(profile=self._account.profile)
            credentials = session.get_credentials()
        except AWS_ERRORS as error:
            raise self._credentials_error(str(error)) from error
        if credentials is None:
            raise self._credentials_error("none found")
        return credentials

    def _credentials_error(self, reason: str) -> AuthenticationError:
        text = clean_message(reason).rstrip(".")
        return AuthenticationError(
            f"Cannot load AWS credentials for Bedrock ({text}); run `aws configure`, or set "
            f"{BEARER_VARIABLE}.",
            provider=self.name,
        )

    def _decode_answer(self, body: bytes, request: ProviderRequest) -> list[ReplyEvent]:
        return bedrock_decoder.decode_answer(body, names=request.names)

    def _stream_reader(self, request: ProviderRequest) -> StreamReader:
        return _EventStreamReader(request.names)

    def _error_details(self, response: HttpResponse, body: bytes) -> ErrorDetails:
        kind = response.headers.get("X-Amzn-Errortype", "").split(":")[0]
        return bedrock_decoder.decode_error(body, kind=kind)


class FrameDecoder:
    """Decodes the frames of an AWS event stream from chunks of any size.

    botocore's buffer copies all of its bytes for every chunk and frame, so it gets one frame at a
    time. Consume the frames of a chunk before feeding the next.
    """

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._needed = PRELUDE_BYTES

    def feed(self, chunk: bytes) -> Iterator[EventStreamMessage]:
        """Yield the frames that `chunk` completes."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size < self._needed:
            return
        data = b"".join(self._chunks)
        start, self._needed = 0, PRELUDE_BYTES
        while len(data) - start >= PRELUDE_BYTES:
            length, headers_length = _prelude.unpack_from(data, start)
            if headers_length > length - EMPTY_FRAME_BYTES:
                raise MalformedError(f"a frame of {length} bytes in an event stream")
            frame = _parse_frame(data[start : start + length])
            if frame is None:
                self._needed = length
                break
            yield frame
            start += length
        self._chunks, self._size = [data[start:]], len(data) - start


def _parse_frame(data: bytes) -> EventStreamMessage | None:
    """Return the event of a frame; None if the frame is incomplete."""
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    try:
        return next(buffer, None)
    except (ParserError, struct.error, KeyError, UnicodeDecodeError) as error:
        raise MalformedError(f"an invalid frame in an event stream: {error}") from error


class _EventStreamReader:
    done = False

    def __init__(self, names: Mapping[str, str]) -> None:
        self._frames = FrameDecoder()
        self._decoder = bedrock_decoder.BedrockStreamDecoder(names=names)

    def feed(self, chunk: bytes) -> Iterator[ReplyEvent]:
        for frame in self._frames.feed(chunk):
            yield from self._decoder.decode(_get_event_name(frame.headers), frame.payload)

    def finish(self) -> ReplyFinished | None:
        return self._decoder.finish()


def _get_event_name(headers: Mapping[str, Any]) -> str:
    if headers.get(":message-type") == "error":
        details = ErrorDetails(
            message=str(headers.get(":error-message", "")), type=str(headers.get(":error-code", ""))
        )
        raise ReportedError(details)
    return str(headers.get(":event-type") or headers.get(":exception-type") or "")
