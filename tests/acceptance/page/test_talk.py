"""Talking in the page: sending, streaming, stopping, attachments, drafts, edits."""

import base64
import json
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Locator, Page, expect
from tests.fake_provider import FakeProvider, ToolCall
from tests.home import Home
from tests.server_process import COMPLETIONS, Server, completion_body, list_messages

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
COMPLETE = "#turns .turn[data-state=complete]"


def prompt(page: Page) -> Locator:
    return page.locator("#composer [name=prompt]")


def send(page: Page, text: str) -> None:
    prompt(page).fill(text)
    prompt(page).press("Control+Enter")


def start_conversation(server: Server, text: str = "Hello") -> str:
    return server.complete(("user", text), conversation="").conversation


def create_conversation(server: Server) -> str:
    """Create an empty conversation, which takes no queued reply."""
    conversation: str = server("POST", "/v1/conversations", {}).json["id"]
    return conversation


def sent_messages(upstream: FakeProvider) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = json.loads(upstream.requests[-1].body)["messages"]
    return messages


def open_turn(server: Server, conversation: str, text: str = "More"):
    """Start a streamed turn as another client."""
    body = completion_body(("user", text), stream=True)
    return server.open("POST", COMPLETIONS, body, {"X-Conversation-ID": conversation})


def test_a_new_conversation_streams_and_is_rendered(page: Page, upstream: FakeProvider):
    gate = upstream.queue_held_reply(
        "# Title\n\n",
        "Some *text* and\n\n",
        "the ",
        "end.",
        at=3,
        reasoning=("Think ", "first."),
    )
    page.goto("/")
    page.keyboard.press("c")
    expect(prompt(page)).to_be_focused()

    send(page, "Write something.")

    live = page.locator("#turns .turn .live")
    expect(live.locator("em")).to_have_text("text")
    expect(live.locator(".tail")).to_have_text("the ")
    expect(live.locator(".thinking pre")).to_have_text("Think first.")
    expect(page.locator("#composer .stop")).to_be_visible()
    expect(page.locator("#composer .send")).to_be_hidden()
    assert "/c/" in page.url
    gate.open()
    expect(page.locator(COMPLETE)).to_have_count(1)
    expect(page.locator(".live")).to_have_count(0)
    expect(page.locator("#turns .message[data-role=assistant] h3")).to_have_text("Title")
    expect(page.locator("#composer .send")).to_be_visible()
    expect(page.locator("#rows .row").first).to_contain_text("Write something.")
    assert [one["content"] for one in sent_messages(upstream)] == ["Write something."]


def test_tool_calls_are_shown_while_they_stream(page: Page, server: Server, upstream: FakeProvider):
    call = ToolCall(id="c1", name="search", arguments='{"q": "cats"}')
    gate = upstream.queue_held_reply("Look. ", "Done.", at=2, tool_calls=(call,))
    page.goto(f"/c/{create_conversation(server)}")

    send(page, "Search for cats.")

    tool = page.locator("#turns .live .tool")
    gate.open()
    expect(page.locator("#turns .tool summary").first).to_contain_text("search")
    expect(tool).to_have_count(0)


def test_stop_cancels_the_turn_and_keeps_its_text(
    page: Page, server: Server, upstream: FakeProvider
):
    page.goto(f"/c/{start_conversation(server)}")
    gate = upstream.queue_held_reply("Half of ", "the reply.", at=1)
    send(page, "Count.")
    expect(page.locator(".live .tail")).to_have_text("Half of ")

    page.locator("#composer .stop").click()

    expect(page.locator("#turns .turn[data-state=incomplete]")).to_contain_text("Half of")
    expect(page.locator("#composer .send")).to_be_visible()
    upstream.requests[-1].wait_disconnected()
    gate.open()
    conversation = page.url.rpartition("/")[2]
    assert list(list_messages(server, conversation))[-1] == ("assistant", "Half of ")


def test_a_turn_can_be_stopped_before_its_first_event(
    page: Page, server: Server, upstream: FakeProvider, expected_problems: list[str]
):
    expected_problems.append("409")
    page.goto(f"/c/{start_conversation(server)}")
    count = len(upstream.requests)
    gate = upstream.queue_held_reply("Never.", at=0)
    send(page, "Count.")
    upstream.wait_for(count + 1)

    page.locator("#composer .stop").click()

    expect(page.locator("#turns .turn[data-state=failed]")).to_have_count(1)
    upstream.requests[-1].wait_disconnected()
    gate.open()


def test_a_reload_resumes_and_another_tab_sees_the_turn_grow(
    page: Page, server: Server, upstream: FakeProvider
):
    conversation = start_conversation(server)
    page.goto(f"/c/{conversation}")
    other = page.context.new_page()
    other.goto(f"/c/{conversation}")
    expect(other.locator("body")).to_have_attribute("data-feed", "ready")
    gate = upstream.queue_held_reply("First\n\n", "second ", "third.", at=2)
    send(page, "Go.")
    expect(page.locator(".live .tail")).to_have_text("second ")
    expect(other.locator(".live .tail")).to_have_text("second ")
    expect(other.locator("#composer .stop")).to_be_visible()

    page.reload()

    expect(page.locator(".live .tail")).to_have_text("second ")
    expect(page.locator(".live .block")).to_have_text("First")
    gate.open()
    for tab in (page, other):
        expect(tab.locator(COMPLETE)).to_have_count(2)
        expect(tab.locator("#turns")).to_contain_text("second third.")
        expect(tab.locator(".live")).to_have_count(0)


def test_the_view_follows_only_at_the_bottom(page: Page, server: Server, upstream: FakeProvider):
    upstream.queue_reply("\n\n".join(f"Paragraph {number}." for number in range(100)))
    page.goto(f"/c/{start_conversation(server)}")
    gates = [upstream.gate(), upstream.gate()]
    pieces = ["Start.\n\n" * 40, "middle\n\n" * 40, "end\n\n" * 40]
    upstream.queue_reply(*pieces, hold={1: gates[0], 2: gates[1]})
    main = page.locator("#main")
    distance = "main => main.scrollHeight - main.scrollTop - main.clientHeight"
    send(page, "Go.")
    expect(page.locator(".live .block p").nth(30)).to_be_attached()
    page.wait_for_function(f"({distance})(document.getElementById('main')) < 50")

    main.evaluate("main => { main.scrollTop = 200 }")
    expect(page.locator("#composer .jump")).to_be_visible()
    gates[0].open()
    expect(page.locator(".live")).to_contain_text("middle")
    assert abs(main.evaluate("main => main.scrollTop") - 200) < 2
    page.locator("#composer .jump").click()
    gates[1].open()
    expect(page.locator(COMPLETE)).to_have_count(2)
    page.wait_for_function(f"({distance})(document.getElementById('main')) < 50")
    expect(page.locator("#composer .jump")).to_be_hidden()


def test_an_error_is_shown_at_its_turn_and_tried_again(
    page: Page, server: Server, upstream: FakeProvider, expected_problems: list[str]
):
    expected_problems.append("Failed to load resource")
    page.goto(f"/c/{start_conversation(server)}")
    upstream.queue_error(500, "The model is on fire.")
    send(page, "Hello again.")
    failed = page.locator("#turns .turn[data-state=failed]")
    expect(failed).to_contain_text("The model is on fire.")
    expect(failed).to_contain_text("Hello again.")

    upstream.queue_reply("It works.")
    failed.locator("[data-action=retry]").first.click()

    expect(page.locator(COMPLETE)).to_have_count(2)
    expect(page.locator("#turns")).to_contain_text("It works.")
    expect(page.locator("#turns > .turn")).to_have_count(2)


def test_an_error_in_the_middle_of_a_stream_keeps_the_text(
    page: Page, server: Server, upstream: FakeProvider
):
    page.goto(f"/c/{start_conversation(server)}")
    upstream.queue_reply("Half. ", "Rest.", stop_after=1)

    send(page, "Go.")

    turn = page.locator("#turns .turn[data-state=failed]")
    expect(turn).to_contain_text("Half.")
    expect(turn).to_contain_text("closed the connection before the reply was complete")
    expect(turn.locator("[data-action=retry]")).to_have_count(1)


def test_a_double_click_sends_once(page: Page, server: Server, upstream: FakeProvider):
    page.goto(f"/c/{start_conversation(server)}")
    count = len(upstream.requests)
    prompt(page).fill("Once.")

    page.locator("#composer .send").dblclick()

    expect(page.locator(COMPLETE)).to_have_count(2)
    assert len(upstream.requests) == count + 1


def test_the_second_click_of_a_double_click_does_not_stop_the_turn(
    page: Page, server: Server, upstream: FakeProvider
):
    page.goto(f"/c/{start_conversation(server)}")
    gate = upstream.queue_held_reply("Sent ", "once.", at=1)
    prompt(page).fill("Once.")
    page.locator("#composer .send").click()
    expect(page.locator("#turns")).to_contain_text("Sent")
    expect(page.locator("#composer .stop")).to_be_enabled()

    page.mouse.down(click_count=2)
    page.mouse.up(click_count=2)
    gate.open()

    expect(page.locator(COMPLETE)).to_have_count(2)
    expect(page.locator("#turns")).to_contain_text("Sent once.")


def test_a_busy_conversation_gives_a_sentence_and_loses_nothing(
    page: Page, server: Server, upstream: FakeProvider, expected_problems: list[str]
):
    expected_problems.append("409")
    conversation = start_conversation(server)
    page.goto(f"/c/{conversation}")
    page.route("**/v1/conversations/events", lambda route: route.abort())
    expected_problems.append("net::ERR_FAILED")
    page.reload()
    gate = upstream.queue_held_reply("Busy ", "now.", at=1)
    running = open_turn(server, conversation)
    running.event()

    send(page, "Me too.")

    unsent = page.locator("#turns .turn.unsent")
    expect(unsent).to_contain_text("Me too.")
    expect(unsent.locator(".turn-error")).to_contain_text("running")
    gate.open()
    running.rest()
    unsent.get_by_role("button", name="Try again").click()
    expect(page.locator(COMPLETE)).to_have_count(3)
    expect(page.locator("#turns .unsent")).to_have_count(0)
    roles = [role for role, _ in list_messages(server, conversation)]
    assert roles == ["user", "assistant"] * 3


def test_a_turn_has_its_own_model_and_system_prompt(
    page: Page, server: Server, upstream: FakeProvider
):
    conversation = start_conversation(server)
    page.goto(f"/c/{conversation}")
    page.locator("#composer .system summary").click()
    page.locator("#composer [name=system]").fill("Be brief.")
    page.locator("#composer [name=model]").evaluate(
        "select => { select.add(new Option('openai/gpt-other')); select.selectedIndex = 2 }"
    )

    send(page, "Hello.")

    expect(page.locator(COMPLETE)).to_have_count(2)
    body = json.loads(upstream.requests[-1].body)
    assert body["model"] == "gpt-other"
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert [role for role, _ in list_messages(server, conversation)].count("system") == 0
    expect(page.locator("#turns .turn").last.locator(".facts")).to_contain_text("gpt-other")


def test_images_and_text_files_are_attached(page: Page, server: Server, upstream: FakeProvider):
    conversation = start_conversation(server)
    page.goto(f"/c/{conversation}")
    files = page.locator("#composer [name=files]")
    uploads: list[FilePayload] = [
        {"name": "pixel.png", "mimeType": "image/png", "buffer": PIXEL},
        {"name": "notes.md", "mimeType": "text/markdown", "buffer": b"A ```fence``` here.\n"},
        {"name": "data.bin", "mimeType": "application/octet-stream", "buffer": b"\xff\0"},
    ]
    files.set_input_files(uploads)
    expect(page.locator("#composer .attachments li")).to_have_count(2)
    expect(page.locator("#messages")).to_contain_text("data.bin is neither an image nor a text")
    paste = """([element, text]) => {
        const data = new DataTransfer();
        data.setData("text/plain", text);
        const options = { clipboardData: data, bubbles: true, cancelable: true };
        element.dispatchEvent(new ClipboardEvent("paste", options));
    }"""
    page.evaluate(paste, [prompt(page).element_handle(), "long " * 100_000])
    expect(page.locator("#composer .attachments li")).to_have_count(3)
    page.get_by_role("button", name="Remove Pasted text.txt").click()
    drop = """([element, text]) => {
        const data = new DataTransfer();
        data.items.add(new File([text], "dropped.py", { type: "text/x-python" }));
        const large = [new Uint8Array(30 * 1024 * 1024)];
        data.items.add(new File(large, "big.png", { type: "image/png" }));
        for (const name of ["dragover", "drop"]) {
            const options = { dataTransfer: data, bubbles: true, cancelable: true };
            element.dispatchEvent(new DragEvent(name, options));
        }
    }"""
    page.evaluate(drop, [page.locator("#turns").element_handle(), "print(1)\n"])
    expect(page.locator("#messages")).to_contain_text("big.png has 30.0 MB")
    expect(page.locator("#composer .attachments li")).to_have_count(3)

    send(page, "What is this?")

    expect(page.locator(COMPLETE)).to_have_count(2)
    image, notes, code, question = sent_messages(upstream)[-1]["content"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,")
    assert notes["text"] == "notes.md:\n````md\nA ```fence``` here.\n````"
    assert code["text"] == "dropped.py:\n```py\nprint(1)\n```"
    assert question == {"type": "text", "text": "What is this?"}
    expect(page.locator("#composer .attachments li")).to_have_count(0)


def test_drafts_belong_to_a_conversation_and_survive_a_reload(page: Page, server: Server):
    one, other = start_conversation(server, "One"), start_conversation(server, "Other")
    page.goto(f"/c/{one}")
    prompt(page).fill("A draft\n" * 20)
    height = prompt(page).evaluate(
        "field => field.clientHeight / parseFloat(getComputedStyle(field).lineHeight)"
    )
    assert 10 <= height < 11

    page.locator(f"#rows .row[data-id='{other}']").click()
    expect(page.locator("#turns")).to_contain_text("Other")
    expect(prompt(page)).to_have_value("")
    page.go_back()
    expect(page.locator("#turns")).to_contain_text("One")
    expect(prompt(page)).to_have_value("A draft\n" * 20)
    page.reload()
    expect(prompt(page)).to_have_value("A draft\n" * 20)
    send(page, "Sent.")
    expect(page.locator(COMPLETE)).to_have_count(2)
    page.reload()
    expect(prompt(page)).to_have_value("")


def test_a_first_message_that_is_refused_leaves_no_empty_conversation(
    page: Page, server: Server, expected_problems: list[str]
):
    expected_problems.append("404")
    page.goto("/")
    page.locator("#composer [name=model]").evaluate(
        "select => { select.add(new Option('no-such-model')); select.value = 'no-such-model' }"
    )
    send(page, "Hello?")
    unsent = page.locator("#turns .unsent")
    expect(unsent).to_contain_text("Hello?")
    expect(unsent.locator(".turn-error")).to_contain_text("no-such-model")
    refused = page.url.rpartition("/")[2]

    page.locator(".brand").click()

    expect(prompt(page)).to_have_value("Hello?")
    path = f"/v1/conversations/{refused}"
    page.wait_for_function(f"async () => (await fetch('{path}')).status === 404")


def test_edit_regenerate_and_branch(page: Page, server: Server, upstream: FakeProvider):
    conversation = start_conversation(server, "First question")
    server.complete(("user", "Second question"), conversation=conversation)
    page.goto(f"/c/{conversation}")
    expect(page.locator(COMPLETE)).to_have_count(2)
    upstream.queue_reply("Another reply.")
    page.keyboard.press("r")
    expect(page.locator("#turns .turn").last).to_contain_text("Another reply.")
    expect(page.locator("#turns .variants .position")).to_have_text("2/2")
    expect(page.locator("#turns > .turn")).to_have_count(2)

    page.keyboard.press("e")
    editor = page.locator("#turns .editor textarea")
    expect(editor).to_have_value("Second question")
    editor.fill("Third question")
    upstream.queue_reply("In the branch.")
    editor.press("Control+Enter")
    expect(page.locator("#turns")).to_contain_text("In the branch.")
    expect(page.locator(COMPLETE)).to_have_count(2)
    branch = page.url.rpartition("/")[2]
    assert branch != conversation
    texts = [text for role, text in list_messages(server, branch) if role == "user"]
    assert texts == ["First question", "Third question"]
    original = [text for role, text in list_messages(server, conversation) if role == "user"]
    assert original == ["First question", "Second question"]

    page.keyboard.press("b")
    expect(page.locator("#messages")).to_contain_text("This is a branch")
    expect(page).not_to_have_url(f"{server.address}/c/{branch}")
    expect(page.locator(COMPLETE)).to_have_count(2)


def test_the_conversation_of_an_agent_grows(page: Page, server: Server, upstream: FakeProvider):
    conversation = start_conversation(server, "Agent")
    start_conversation(server, "Newer")
    page.goto(f"/c/{conversation}")
    expect(page.locator("body")).to_have_attribute("data-feed", "ready")
    expect(page.locator("#rows .row").first).to_contain_text("Newer")

    server.complete(("user", "Step 2"), conversation=conversation)

    expect(page.locator(COMPLETE)).to_have_count(2)
    expect(page.locator("#rows .row").first).to_contain_text("Agent")
    created = start_conversation(server, "Brand new")
    expect(page.locator("#rows .row").first).to_have_attribute("data-id", created)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
def test_turns_of_other_protocols_are_followed(
    page: Page, server: Server, upstream: FakeProvider, path: str
):
    conversation = start_conversation(server, "Agent")
    page.goto(f"/c/{conversation}")
    expect(page.locator("body")).to_have_attribute("data-feed", "ready")
    call = ToolCall(id="c1", name="search", arguments='{"q": "cats"}')
    gate = upstream.queue_held_reply("One ", "two.", at=1, tool_calls=(call,))
    text = "Step 2"
    body: dict[str, Any] = {"model": "openai/gpt-test", "stream": True}
    if path == "/v1/messages":
        body |= {"messages": [{"role": "user", "content": text}], "max_tokens": 50}
    else:
        body |= {"input": text}
    running = server.open("POST", path, body, {"X-Conversation-ID": conversation})

    expect(page.locator("#turns .live .tail")).to_have_text("One ")
    gate.open()
    running.rest()
    expect(page.locator(COMPLETE)).to_have_count(2)
    expect(page.locator("#turns .turn").last).to_contain_text("One two.")
    expect(page.locator("#turns .tool .name")).to_have_text("search")


def test_a_conversation_file_is_continued_and_stopped(
    page: Page, served_home: Home, upstream: FakeProvider, expected_problems: list[str]
):
    # A conversation file has no stored events.
    expected_problems.append("404")
    served_home.write_old_conversation("cats", ("user", "Hi"), ("assistant", "Hello"))
    page.goto("/c/files:cats")
    send(page, "More.")
    expect(page.locator(COMPLETE)).to_have_count(2)
    gate = upstream.queue_held_reply("Half of ", "it.", at=1)
    send(page, "Count.")
    expect(page.locator(".live .tail")).to_have_text("Half of ")
    other = page.context.new_page()
    other.goto("/c/files:cats")
    expect(other.locator(".live .waiting")).to_be_visible()

    page.locator("#composer .stop").click()

    for tab in (page, other):
        expect(tab.locator("#turns .turn[data-state=incomplete]")).to_contain_text("Half of")
        expect(tab.locator("#composer .send")).to_be_visible()
    gate.open()
    assert served_home.messages("cats")[-1] == ("assistant", "Half of ")


def test_a_long_reply_and_hostile_text_are_shown_as_text(
    page: Page, server: Server, upstream: FakeProvider
):
    page.goto(f"/c/{start_conversation(server)}")
    line = "<img src=x onerror=alert(1)> " * 10 + "\n"
    gate = upstream.queue_held_reply("```html\n", *[line] * 50, "```\n\n", "End.", at=52)
    send(page, "Write a page.")
    expect(page.locator(".live .tail")).to_contain_text("onerror")

    gate.open()

    expect(page.locator(COMPLETE)).to_have_count(2)
    expect(page.locator("#turns .turn").last.locator("img")).to_have_count(0)
    expect(page.locator("#turns .turn").last).to_contain_text("End.")


def test_a_rejected_key_is_reported_at_the_turn(
    page: Page, server: Server, expected_problems: list[str]
):
    expected_problems.append("401")
    page.goto(f"/c/{start_conversation(server)}")
    answer = {"error": {"message": "The key is not valid.", "code": "invalid_token"}}
    page.route(f"**{COMPLETIONS}", lambda route: route.fulfill(status=401, json=answer), times=1)

    send(page, "Still here.")

    unsent = page.locator("#turns .unsent")
    expect(unsent.locator(".turn-error")).to_contain_text("The key is not valid.")
    unsent.get_by_role("button", name="Try again").click()
    expect(page.locator(COMPLETE)).to_have_count(2)
