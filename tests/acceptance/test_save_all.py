"""The setting `save: all` saves every question under an automatic ID."""


def test_questions_are_not_saved_by_default(home, settings, cllm):
    cllm("Hello").succeeded()

    assert not home.conversations.exists()


def test_every_question_is_saved_under_its_own_id(home, settings, cllm):
    settings(save="all")

    first = cllm("First").succeeded()
    cllm("Second").succeeded()

    assert first.err == ""
    files = sorted(home.conversations.glob("c-*.json"))
    assert len(files) == 2
    texts = {dict(home.messages(file.stem))["user"] for file in files}
    assert texts == {"First", "Second"}


def test_a_named_conversation_has_its_name(home, settings, cllm):
    settings(save="all")

    cllm("Hello", "--conversation", "cats").succeeded()

    assert [file.name for file in home.conversations.glob("*.json")] == ["cats.json"]


def test_the_flag_for_an_automatic_id_still_prints_it(home, settings, cllm):
    settings(save="all")

    assert "Conversation: c-" in cllm("Hello", "--conversation").succeeded().err


def test_raw_and_read_only_save_nothing(home, settings, cllm):
    settings(save="all")
    cllm("Hello", "--conversation", "cats").succeeded()
    before = home.snapshot(home.conversations)

    cllm("Hello", "--raw").succeeded()
    cllm("Hello", "--conversation", "cats", "--read-only").succeeded()

    assert home.snapshot(home.conversations) == before


def test_the_questions_are_saved_in_a_database_too(home, settings, cllm, store_url):
    settings(save="all", store=store_url)

    cllm("Hello").succeeded()

    if not store_url.startswith("memory:"):
        assert len(cllm("--list-conversations").succeeded().out.splitlines()) == 1


def test_an_unknown_value_is_an_error(settings, cllm):
    settings(save="some")

    cllm("Hello").failed_with_one_sentence(
        "`save` must be `named` or `all`", prefix="Configuration error: "
    )
