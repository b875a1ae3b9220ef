"""Input from a terminal, a pipe and the history file."""

import io

import pytest
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory

from cllm.repl.input import ChatCompleter, complete_at_once, handle_enter, open_history
from cllm.repl.loop import LineReader
from cllm.repl.screen import replace_surrogates

NAMES = {
    "conversations": [("cats", "About cats"), ("dogs", "")],
    "models": [("openai/gpt-4o", ""), ("local/smollm2", "")],
}


class Completer(ChatCompleter):
    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]

    async def names(self, kind):
        return NAMES[kind]


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("/unp", "/unpin "),
        ("/open c", "/open cats"),
        ("/model open", "/model openai/gpt-4o"),
        ("/zzz", "/zzz"),
    ],
)
async def test_tab_inserts_the_only_match_at_once(text, after):
    completer = Completer()
    buffer = Buffer(completer=completer, document=Document(text))

    await complete_at_once(buffer, completer)

    assert buffer.text == after


async def completed(text: str) -> list[str]:
    found = Completer().get_completions_async(Document(text), CompleteEvent())
    return [completion.text async for completion in found]


class TestCompletion:
    @pytest.mark.parametrize(
        ("typed", "offered"),
        [
            ("/mo", ["model "]),
            ("/MO", ["model "]),
            ("/undo", ["undo"]),
            ("/open ", ["cats", "dogs"]),
            ("/open d", ["dogs"]),
            ("/model l", ["local/smollm2"]),
            ("/nope x", []),
            ("/undo x", []),
            ("hello", []),
            ("/open\nx", []),
        ],
    )
    async def test_completion_offers_the_values_of_the_command_table(self, typed, offered):
        assert await completed(typed) == offered

    async def test_completion_offers_files_for_a_file_argument(self, tmp_path):
        (tmp_path / "report.pdf").touch()

        assert await completed(f"/attach {tmp_path}/rep") == ["ort.pdf"]


class TestLines:
    async def test_each_line_is_a_message(self):
        reader = LineReader(io.BytesIO(b"one\r\ntwo\nthree"))

        assert [await reader.read() for _ in range(3)] == ["one", "two", "three"]
        with pytest.raises(EOFError):
            await reader.read()

    async def test_a_backslash_at_the_end_continues_with_the_next_line(self):
        assert await LineReader(io.BytesIO(b"one\\\ntwo\n")).read() == "one\ntwo"

    async def test_a_backslash_at_the_end_of_input_loses_nothing(self):
        reader = LineReader(io.BytesIO(b"one\\\n"))

        assert await reader.read() == "one"
        with pytest.raises(EOFError):
            await reader.read()

    async def test_invalid_utf8_is_replaced(self):
        assert await LineReader(io.BytesIO(b"a\xffb\n")).read() == "a\ufffdb"

    async def test_missing_standard_input_is_end_of_input(self):
        with pytest.raises(EOFError):
            await LineReader(None).read()

    async def test_an_interactive_reader_prints_the_prompt_for_each_line(self):
        output = io.StringIO()

        await LineReader(io.BytesIO(b"one\n"), output).read()

        assert output.getvalue() == "You: "


class TestEnter:
    def buffer(self, text: str) -> tuple[Buffer, list[str]]:
        submitted: list[str] = []

        def take(buffer: Buffer) -> bool:
            submitted.append(buffer.text)
            return True

        return Buffer(document=Document(text), multiline=True, accept_handler=take), submitted

    def test_enter_submits_the_message(self):
        buffer, submitted = self.buffer("Hello")

        handle_enter(buffer)

        assert submitted == ["Hello"]

    def test_enter_after_a_backslash_starts_a_line(self):
        buffer, submitted = self.buffer("Hello\\")

        handle_enter(buffer)

        assert (buffer.text, submitted) == ("Hello\n", [])


class TestHistory:
    @pytest.mark.usefixtures("umask_022")
    def test_only_the_owner_can_read_the_history(self, tmp_path):
        path = tmp_path / ".cllm" / "chat_history"

        open_history(path).append_string("secret")

        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert "secret" in path.read_text(encoding="utf-8")

    def test_an_unwritable_folder_gives_a_history_in_memory(self, tmp_path):
        (tmp_path / "file").touch()

        assert isinstance(open_history(tmp_path / "file" / "chat_history"), InMemoryHistory)

    def test_a_symbolic_link_is_not_followed(self, tmp_path):
        (tmp_path / "other").write_text("unchanged", encoding="utf-8")
        (tmp_path / "chat_history").symlink_to(tmp_path / "other")

        open_history(tmp_path / "chat_history").append_string("typed")

        assert (tmp_path / "other").read_text(encoding="utf-8") == "unchanged"

    def test_without_a_path_nothing_is_written(self):
        assert isinstance(open_history(None), InMemoryHistory)


def test_surrogates_become_replacement_characters():
    assert replace_surrogates("a\udcffb") == "a\ufffdb"
    assert replace_surrogates("é🌊") == "é🌊"
