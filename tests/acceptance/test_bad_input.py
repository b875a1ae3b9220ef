"""Issue 2, "Bad input": one sentence that says what to do, exit 1, nothing lost or half-written."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fake_provider import Cut, Head, Send, Silence, closed_port, response_steps
from tests.home import SECRET

HELLO = [("user", "Hello"), ("assistant", "Hi.")]
PAGE = b"<!DOCTYPE html>\n<html><body>Please log in to the hotel network</body></html>"


@pytest.fixture(params=["new", "existing"])
def messages(request, home, settings):
    """The messages of the conversation `demo`, which is new or exists."""
    if request.param == "new":
        return []
    home.write_old_conversation("demo", *HELLO)
    return HELLO


@pytest.fixture
def ask(messages, home, cllm):
    """Asks; afterwards every file is as it was."""

    def run(*flags, **options):
        before = home.snapshot()
        result = cllm("And now?", "--conversation", "demo", *flags, **options)
        assert home.snapshot() == before, result.report()
        assert list(home.temporary.iterdir()) == []
        return result

    return run


@pytest.fixture
def send(messages, home, cllm):
    """Asks; afterwards the question is saved as a failed turn, and the messages are as before."""

    def run(*flags, **options):
        before = home.snapshot()
        result = cllm("And now?", "--conversation", "demo", *flags, **options)
        assert home.messages("demo") == messages, result.report()
        failed = home.load("demo")["metadata"]["cllm"]["turns"][-1]
        assert failed["state"] == "failed"
        assert failed["inline"][0]["content"] == "And now?"
        assert SECRET not in home.file("demo").read_text(encoding="utf-8")
        file = str(home.file("demo").relative_to(home.path))
        changed = {name for name, content in home.snapshot().items() if before.get(name) != content}
        assert {file} <= changed
        assert all(name == file or name.startswith(".cache") for name in changed)
        assert list(home.temporary.iterdir()) == []
        return result

    return run


both_ways = pytest.mark.parametrize(
    "flags", [("--stream",), ("--no-stream",)], ids=["stream", "whole"]
)


def test_an_unknown_model(provider, settings, cllm, home):
    before = home.snapshot()

    result = cllm("Hello", "--conversation", "demo", "-m", "no-such-model-anywhere")

    result.failed_with_one_sentence("no-such-model-anywhere")
    assert home.snapshot() == before
    assert provider.requests == []


def test_a_misspelled_model_is_an_error_with_similar_names(provider, settings, cllm):
    result = cllm("Hello", "-m", "local/smollm2-135")

    result.failed_with_one_sentence("smollm2-135m")


def test_a_model_that_the_provider_does_not_know(send, provider):
    provider.queue_error(404, "The model `gpt-test` does not exist.", code="model_not_found")

    send().failed_with_one_sentence("gpt-test")


def test_an_unknown_provider(provider, settings, cllm, home):
    before = home.snapshot()

    result = cllm("Hello", "--conversation", "demo", "-m", "nosuchprovider/some-model")

    result.failed_with_one_sentence("nosuchprovider")
    assert home.snapshot() == before
    assert provider.requests == []


def test_the_provider_of_an_old_conversation_is_unknown(home, provider, settings, cllm):
    home.write_old_conversation("demo", *HELLO, model="nobody/gemini-pro")
    before = home.snapshot()

    line = cllm("Again", "--conversation", "demo").failed_with_one_sentence("'nobody'", "-m")

    assert "litellm/nobody/gemini-pro" in line
    assert home.snapshot() == before
    assert provider.requests == []


def test_a_misspelled_provider_is_an_error_with_a_similar_name(provider, settings, cllm):
    line = cllm("Hello", "-m", "antropic/claude").failed_with_one_sentence("did you mean")

    assert "anthropic/claude" in line
    assert "litellm" not in line


@pytest.fixture
def offline():
    """A wrapper that cuts the command off from every network, where the machine allows that."""
    probe = ["unshare", "-rn", "true"]
    if shutil.which("unshare") and not subprocess.run(probe, check=False).returncode:
        return tuple(probe[:-1])
    return ()


def test_a_missing_key(ask, settings, offline):
    settings(api_key=..., api_base=...)

    ask(wrapper=offline).failed_with_one_sentence("OPENAI_API_KEY")


def test_an_empty_key_is_a_missing_one(ask, settings, offline):
    settings(api_key=..., api_base=...)

    result = ask(wrapper=offline, env={"OPENAI_API_KEY": ""})

    result.failed_with_one_sentence("OPENAI_API_KEY")


@both_ways
def test_an_unreachable_server(flags, send, settings):
    port = closed_port()
    settings(api_base=f"http://127.0.0.1:{port}/v1")

    send(*flags).failed_with_one_sentence(f"127.0.0.1:{port}")


def test_a_host_that_does_not_exist(send, settings):
    settings(api_base="http://no-such-host.invalid/v1")

    send().failed_with_one_sentence("no-such-host.invalid")


@pytest.mark.parametrize("base", ["not a url", "ftp://127.0.0.1/v1", "http://", "127.0.0.1:80"])
def test_a_base_url_that_is_none(base, messages, home, settings, cllm):
    settings(api_base=base)

    result = cllm("And now?", "--conversation", "demo")

    assert result.code == 1, result.report()
    assert "Traceback" not in result.err
    assert len(result.warnings) == 1, result.report()
    saved = home.messages("demo") if home.file("demo").exists() else []
    assert saved == messages


@both_ways
def test_status_401_names_the_key_and_does_not_show_it(flags, send, provider, secret):
    provider.queue_error(401, f"Incorrect API key provided: {secret}.", code="invalid_api_key")

    send(*flags).failed_with_one_sentence("key")
    assert len(provider.requests) == 1


@both_ways
def test_status_429(flags, send, provider):
    provider.queue_error(429, "Rate limit reached for gpt-test.", code="rate_limit_exceeded")

    send(*flags).failed_with_one_sentence()
    assert len(provider.requests) == 1


@both_ways
@pytest.mark.parametrize("status", [500, 503])
def test_status_500_and_above(status, flags, send, provider):
    provider.queue_error(status, "The engine is on fire.")

    send(*flags).failed_with_one_sentence(str(status))


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422, 418])
def test_a_refusal_contains_the_message_of_the_provider(status, send, provider):
    provider.queue_error(status, "The parameter frobnicate is out of range.")

    send().failed_with_one_sentence("frobnicate")


def test_a_refusal_of_several_lines_is_still_one_line(send, provider):
    provider.queue_error(400, "First line.\nSecond line.\r\n\r\nThird line.")

    send().failed_with_one_sentence("First line.")


def test_a_refusal_cannot_write_to_the_terminal(send, provider):
    provider.queue_error(400, "Before \x1b[2J\x1b]0;owned\x07 after.")

    line = send().failed_with_one_sentence("Before")
    assert "\x1b" not in line
    assert "\x07" not in line


@pytest.mark.parametrize("status", [200, 302, 500])
@both_ways
def test_a_web_page_instead_of_json(status, flags, send, provider):
    provider.queue_steps(*response_steps(status, PAGE, content_type="text/html"))

    line = send(*flags).failed_with_one_sentence()
    assert "\n" not in line


@both_ways
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b'{"id": "chatcmpl-1", "choi', id="half of it"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"null", id="null"),
        pytest.param(b"{}", id="an empty object"),
        pytest.param(b'{"choices": []}', id="no choices"),
        pytest.param(b'{"choices": [{"message": 3}]}', id="a number as message"),
        pytest.param(b"\xff\xfe\x00\x01", id="bytes"),
    ],
)
def test_garbage_instead_of_json(body, flags, send, provider):
    provider.queue_steps(*response_steps(200, body))

    send(*flags).failed_with_one_sentence()


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(b"data: {not json\n\n", id="not JSON"),
        pytest.param(b"data: [1, 2]\n\n", id="a list"),
        pytest.param(b'data: {"choices": "none"}\n\n', id="choices are text"),
        pytest.param(b"data: \xff\xfe\n\n", id="bytes"),
        pytest.param(
            b'data: {"error": {"message": "The engine stalled.", "type": "server_error"}}\n\n',
            id="an error event",
        ),
    ],
)
def test_garbage_in_the_middle_of_a_stream(event, send, provider):
    provider.queue_steps(
        Head(headers={"Content-Type": "text/event-stream"}, chunked=True),
        Send(b'data: {"choices": [{"index": 0, "delta": {"content": "Well, "}}]}\n\n'),
        Send(event),
        Send(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'),
        Send(b"data: [DONE]\n\n"),
    )

    send("--stream").failed_with_one_sentence()


def test_broken_json_in_a_reply_that_began_well(send, provider):
    provider.queue_reply("Well, ", "it", " depends", garbage_before=1)

    send("--stream").failed_with_one_sentence()


def test_a_stream_cut_in_the_middle(send, provider):
    provider.queue_reply("Well, ", "it depends", stop_after=1)

    result = send("--stream")

    result.failed_with_one_sentence()
    assert result.out in ("Well, ", "Well, \n")
    assert len(provider.requests) == 1


def test_a_stream_cut_before_the_first_word(send, provider):
    provider.queue_reply("Well, ", stop_after=0)

    send("--stream").failed_with_one_sentence()


def test_a_stream_that_ends_politely_before_the_answer_does(send, provider):
    provider.queue_reply("Well, ", "it depends", stop_after=1, abrupt=False)

    send("--stream").failed_with_one_sentence()


def test_a_stream_cut_in_the_middle_of_an_event(send, provider):
    provider.queue_steps(
        Head(headers={"Content-Type": "text/event-stream"}, chunked=True),
        Send(b'data: {"choices": [{"index": 0, "delta": {"content": "Well, "}}]}\n\n'),
        Send(b'data: {"choices": [{"index": 0, "del'),
        Cut(),
    )

    send("--stream").failed_with_one_sentence()


def test_a_whole_reply_cut_in_the_middle(send, provider):
    provider.queue_reply("Well, it depends", stop_after=0)

    send("--no-stream").failed_with_one_sentence()


def test_a_connection_closed_without_a_word(send, provider):
    provider.queue_steps(Cut())

    send().failed_with_one_sentence()


def test_a_response_that_is_not_http_is_an_error(send, provider):
    provider.queue_steps(Send(b"SSH-2.0-OpenSSH_9.6\r\n"), Cut())

    send().failed_with_one_sentence()


@both_ways
def test_a_server_that_never_answers(flags, send, provider, settings):
    settings(timeout=0.5)
    provider.queue_steps(Silence())

    send(*flags).failed_with_one_sentence()
    provider.requests[0].wait_disconnected()


def test_a_server_that_falls_silent_in_the_middle(send, provider, settings):
    settings(timeout=0.5)
    provider.queue_steps(
        Head(headers={"Content-Type": "text/event-stream"}, chunked=True),
        Send(b'data: {"choices": [{"index": 0, "delta": {"content": "Well, "}}]}\n\n'),
        Silence(),
    )

    send("--stream").failed_with_one_sentence()
    provider.requests[0].wait_disconnected()


def test_a_folder_that_cannot_be_made(home, provider, settings, cllm):
    (home.path / "in-the-way").write_bytes(b"a file")
    before = home.snapshot()
    provider.queue_reply("Precious.")

    folder = str(home.path / "in-the-way/conversations")
    result = cllm("Hello", "--conversation", "demo", "--conversations-path", folder)

    result.failed_with_one_sentence("in-the-way")
    assert home.snapshot() == before
    assert provider.requests == [] or "Precious." in result.out


def test_a_folder_that_is_a_file(home, provider, settings, cllm):
    home.conversations.parent.mkdir(exist_ok=True)
    home.conversations.write_bytes(b"a file")
    before = home.snapshot()

    cllm("Hello", "--conversation", "demo").failed_with_one_sentence("conversations")

    assert home.snapshot() == before


def test_a_conversation_file_that_is_a_folder(home, provider, settings, cllm):
    home.file("demo").mkdir(parents=True)
    before = home.entries()

    cllm("Hello", "--conversation", "demo").failed_with_one_sentence("demo.json")

    assert [entry for entry in home.entries() if "lock" not in entry] == before


@pytest.fixture
def small_disk(home, cllm):
    """Runs the command where the conversations are on a file system of their own.

    The file system lives in a mount namespace of the command's and is gone with it; what was on it
    at the end is returned as a snapshot. `options` are those of mount.
    """
    unshare = shutil.which("unshare")
    script = """
        set -e
        mkdir -p "$1"
        cp -a "$1/." "$2/"
        mount -t tmpfs -o "$3" tmpfs "$1"
        cp -a "$2/." "$1/"
        mount -o "remount,$3,$4" "$1"
        folder=$1 copy=$2
        shift 4
        code=0
        "$@" || code=$?
        rm -rf "$copy"
        cp -a "$folder" "$copy"
        exit $code
    """
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(home.temporary)]
    if unshare is None or subprocess.run(probe, check=False, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a file system in a namespace")

    def run(*arguments, size="64k", access="rw"):
        copy = home.path.parent / "copy"
        copy.mkdir()
        names = (str(home.conversations), str(copy), f"size={size}", access)
        wrapper = ("unshare", "-rm", "sh", "-c", script, "sh", *names)
        return cllm(*arguments, wrapper=wrapper), home.snapshot(copy)

    return run


def test_a_folder_that_may_only_be_read(home, provider, settings, small_disk):
    data = home.write_old_conversation("demo", *HELLO)
    provider.queue_reply("Precious.")

    result, after = small_disk("Again", "--conversation", "demo", access="ro")

    result.failed_with_one_sentence("conversations")
    assert after == {"demo.json": data}
    assert provider.requests == [] or "Precious." in result.out


def test_a_full_disk(home, provider, settings, small_disk):
    data = home.write_old_conversation("demo", ("user", "x" * 20_000), ("assistant", "Hi."))
    result, after = small_disk("Again", "--conversation", "demo", size="32k")

    result.failed_with_one_sentence("the disk is full")
    assert after == {"demo.json": data}
    assert provider.requests == [], "a question that cannot be saved was sent"


def test_a_disk_that_is_full_after_the_question(home, provider, settings, small_disk):
    home.write_old_conversation("demo", ("user", "x" * 4_000), ("assistant", "Hi."))
    provider.queue_reply("y" * 30_000)

    result, _ = small_disk("Again", "--conversation", "demo", size="32k")

    result.failed_with_one_sentence("the disk is full")
    assert "y" * 30_000 in result.out


@pytest.mark.parametrize("limit", [0, 1024, 20_500], ids=["no byte", "few bytes", "all but a few"])
def test_a_file_that_cannot_grow(limit, home, provider, settings, cllm):
    home.write_old_conversation("demo", ("user", "x" * 20_000), ("assistant", "Hi."))
    before = home.snapshot()
    provider.queue_reply("Precious.")

    result = cllm.with_file_size_limit(limit, "Again", "--conversation", "demo")

    result.failed_with_one_sentence()
    assert home.snapshot() == before
    assert provider.requests == [] or "Precious." in result.out


def test_a_new_file_that_cannot_be_written(home, provider, settings, cllm):
    before = home.snapshot()

    result = cllm.with_file_size_limit(100, "Hello", "--conversation", "demo")

    result.failed_with_one_sentence()
    assert home.snapshot() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_output_that_cannot_be_written(home, settings, cllm):
    script = 'exec "$@" > /dev/full'

    result = cllm("Hello", wrapper=("sh", "-c", script, "sh"))

    assert result.code != 0, result.report()
    assert "Traceback" not in result.err
    assert "Exception ignored" not in result.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("flag", ["--version", "--help", "--list-conversations"])
def test_a_list_that_cannot_be_written(flag, home, settings, cllm):
    home.write_old_conversation("demo", *HELLO)

    result = cllm(flag, wrapper=("sh", "-c", 'exec "$@" > /dev/full', "sh"))

    assert result.code != 0, result.report()
    assert "Traceback" not in result.err
    assert "Exception ignored" not in result.err


@pytest.mark.parametrize(
    ("closed", "answered"),
    [("<&-", True), (">&-", False), ("2>&-", True)],
    ids=["in", "out", "err"],
)
def test_a_standard_stream_that_is_closed(closed, answered, home, settings, cllm):
    wrapper = ("sh", "-c", f'exec "$@" {closed}', "sh")

    result = cllm("Hello", "--conversation", "demo", wrapper=wrapper)

    assert "Traceback" not in result.err
    assert result.code in ((0,) if answered else (0, 1)), result.report()
    if result.code == 0:
        assert home.messages("demo") == [("user", "Hello"), ("assistant", "echo: Hello")]


def test_a_key_with_a_line_break_is_called_a_key(send, provider, settings):
    settings(api_key="sk-test\nsecond line")

    line = send().failed_with_one_sentence("key")

    assert "second line" not in line
    assert provider.requests == []


def test_an_invalid_id(home, provider, settings, cllm):
    before = home.snapshot()

    cllm("Hello", "--conversation", "../../x").failed_with_one_sentence("../../x")

    assert home.snapshot() == before
    assert provider.requests == []


def test_an_id_that_is_too_long_for_a_file_name(home, provider, settings, cllm):
    before = home.snapshot()

    result = cllm("Hello", "--conversation", "x" * 300)

    result.failed_with_one_sentence()
    assert home.snapshot() == before


def test_a_broken_conversation_file(home, provider, settings, cllm):
    home.write_conversation("demo", b'{"id": "demo", "messages": [{"role": "user", "content": "Hel')
    before = home.snapshot()

    cllm("Hello", "--conversation", "demo").failed_with_one_sentence("demo.json")

    assert home.snapshot() == before
    assert provider.requests == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("model: [openai", ("Cllmfile.yml",), id="torn"),
        pytest.param("- a\n- list\n", ("Cllmfile.yml",), id="a list"),
        pytest.param("model: a\n\tb: c\n", ("Cllmfile.yml", "line 2"), id="a tab"),
    ],
)
def test_a_broken_cllmfile(text, words, provider, settings, cllm):
    settings().write_text(text, encoding="utf-8")

    result = cllm("Hello")

    line = result.failed_with_one_sentence(*words, prefix="")
    assert "Configuration error: " in line
    assert provider.requests == []


@pytest.mark.parametrize(
    "keys",
    [
        {"num_retries": "many"},
        {"timeout": "soon"},
        {"extra_headers": "X-Team"},
        {"providers": ["openai"]},
        {"model": 7},
        {"default_system_message": ["a", "list"]},
    ],
    ids=lambda keys: next(iter(keys)),
)
def test_a_setting_of_the_wrong_kind_is_named(keys, home, provider, settings, cllm):
    settings(**keys)

    result = cllm("Hello")

    line = result.failed_with_one_sentence(next(iter(keys)), prefix="")
    assert "Configuration error: " in line
    assert provider.requests == []


@pytest.mark.parametrize("name", ["Cllmfile.yml", ".cllm/Cllmfile.yml"])
def test_an_untrusted_cllmfile_sends_nothing(name, home, provider, settings, cllm):
    path = home.work / name
    path.parent.mkdir(exist_ok=True)
    settings(api_base=f"http://127.0.0.1:{closed_port()}/v1")
    path.write_text(f"api_base: {provider.url}\n", encoding="utf-8")

    line = cllm("Hello").failed_with_one_sentence("cllm trust", "api_base", prefix="")

    assert line.startswith(("Error: ", "Configuration error: "))
    assert provider.requests == []
    cllm("Hello", env={"CLLM_TRUST": "always"}).succeeded()
    assert len(provider.requests) == 1


def test_an_error_after_saved_turns_loses_none_of_them(home, provider, settings, cllm):
    for number in range(3):
        cllm(f"Question {number}", "--conversation", "demo").succeeded()
    before = home.messages("demo")
    provider.queue_error(500)
    provider.queue_reply("Well, ", "it", stop_after=1)

    cllm("Lost", "--conversation", "demo").failed_with_one_sentence()
    cllm("Lost", "--conversation", "demo").failed_with_one_sentence()
    assert home.messages("demo") == before
    cllm("Found", "--conversation", "demo").succeeded()

    asked = [content for role, content in provider.requests[-1].message_pairs if role == "user"]
    assert asked == ["Question 0", "Question 1", "Question 2", "Found"]
    assert json.loads(home.file("demo").read_bytes())["id"] == "demo"


def test_the_installed_command_fails_as_the_module_does(provider, settings, cllm):
    installed = Path(sys.executable).with_name("cllm")
    assert installed.exists(), "the package is not installed beside this Python"
    cllm.command = (str(installed),)
    provider.queue_error(500, "The engine is on fire.")

    cllm("Hello").failed_with_one_sentence("500")
    cllm("Hello").succeeded()


@pytest.mark.parametrize(
    "arguments",
    [
        ("conversations", "delete", "demo", "--yes", "--store", ""),
        ("conversations", "delete", "demo", "--yes", "--conversations-path", ""),
        ("conversations", "delete", "demo", "--yes", "--cllm-path", ""),
        ("conversations", "import", ""),
        ("db", "upgrade", "--store", ""),
        ("serve", "--store", ""),
        ("restore", ""),
        ("Hello", "--system-file", ""),
    ],
    ids=" ".join,
)
def test_an_empty_store_or_path_is_not_the_default_one(arguments, home, settings, cllm):
    home.write_old_conversation("demo", *HELLO)

    result = cllm(*arguments)

    assert result.code == 2
    assert "it is empty." in result.err
    assert home.messages("demo") == HELLO
