"""The prompt: from the command line, standard input, or both."""

import pytest


def test_the_prompt_is_the_argument(provider, settings, cllm):
    result = cllm("What is a cat?").succeeded()

    assert provider.requests[0].message_pairs == [("user", "What is a cat?")]
    assert result.out == "echo: What is a cat?\n"
    assert result.err == ""


def test_the_prompt_is_standard_input(provider, settings, cllm):
    cllm(stdin="Was ist das? 🐈".encode()).succeeded()

    assert provider.requests[0].message_pairs == [("user", "Was ist das? 🐈")]


def test_argument_and_standard_input_are_joined_by_a_newline(provider, settings, cllm):
    cllm("Explain:", stdin=b"def f():\n    pass").succeeded()

    assert provider.requests[0].message_pairs == [("user", "Explain:\ndef f():\n    pass")]


@pytest.mark.parametrize("stdin", [b"", b"  \n\n"], ids=["empty", "blank"])
def test_no_prompt_is_an_error_with_advice(stdin, home, provider, settings, cllm):
    before = home.snapshot()

    result = cllm(stdin=stdin)

    assert result.code == 1, result.report()
    assert result.err == "Error: No prompt provided. Use 'cllm --help' for usage.\n"
    assert result.out == ""
    assert provider.requests == []
    assert home.snapshot() == before


def test_a_conversation_without_a_prompt_is_the_same_error(home, provider, settings, cllm):
    result = cllm("--conversation", "demo")

    assert result.code == 1, result.report()
    assert result.err == "Error: No prompt provided. Use 'cllm --help' for usage.\n"
    assert not home.file("demo").exists()


def test_a_prompt_that_is_not_text_ends_without_a_traceback(home, provider, settings, cllm):
    result = cllm("Explain:", "--conversation", "demo", stdin=b"\xff\xfe\x00\x80")

    assert result.code in (0, 1), result.report()
    assert "Traceback" not in result.err
    if result.code == 1:
        assert not home.file("demo").exists()


def test_input_in_another_encoding_is_sent_with_a_warning(provider, settings, cllm):
    result = cllm("Explain:", stdin="Äpfel für ¾ €".encode("cp1252")).succeeded()
    clean = cllm("Explain:", stdin="Äpfel \ufffd für".encode()).succeeded()

    assert "not UTF-8; 4 invalid bytes" in result.err
    assert "iconv -f latin1 -t utf-8" in result.err
    assert len(result.warnings) == 1
    assert clean.err == ""
    assert provider.requests[1].message_pairs[0][1].endswith("Äpfel \ufffd für")


def test_a_line_of_a_chat_in_another_encoding_is_sent_with_a_warning(provider, settings, cllm):
    result = cllm("chat", stdin="Äpfel\nApfel\n".encode("latin-1")).succeeded()

    assert result.err.count("not UTF-8; 1 invalid bytes") == 1
    assert len(provider.requests) == 2


def test_an_argument_that_is_not_text_ends_without_a_traceback(home, provider, settings, cllm):
    result = cllm(b"Explain \xff\xfe", "--conversation", "demo")

    assert result.code in (0, 1), result.report()
    assert "Traceback" not in result.err
    if result.code == 1:
        result.failed_with_one_sentence()
        assert not home.file("demo").exists()


def test_a_long_prompt_arrives_whole(provider, settings, cllm):
    text = "word " * 200_000 + "end"

    cllm(stdin=text.encode()).succeeded()

    assert provider.requests[0].message_pairs == [("user", text)]


def test_a_prompt_can_start_with_a_dash_after_two_dashes(provider, settings, cllm):
    cllm("--", "-5 + 3?").succeeded()

    assert provider.requests[0].message_pairs == [("user", "-5 + 3?")]


def test_an_unknown_flag_is_a_usage_error(provider, settings, cllm):
    result = cllm("Hello", "--no-such-flag")

    assert result.code == 2, result.report()
    assert "--no-such-flag" in result.err
    assert provider.requests == []


def test_a_word_of_a_sub_command_can_be_a_prompt_when_there_is_more(provider, settings, cllm):
    cllm("init is a word").succeeded()

    assert provider.requests[0].message_pairs == [("user", "init is a word")]
