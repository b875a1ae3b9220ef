"""`cllm demo`: example conversations at once, which leave nothing behind."""

import json
import signal
from urllib.request import urlopen

import pytest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_serves_conversations_and_deletes_them_at_the_end(number, cllm, home):
    temporary = home.path / "tmp"
    temporary.mkdir()
    home.write_old_conversation("mine", ("user", "Not for the demo."), ("assistant", "Right."))
    running = cllm.start("demo", "--no-open", env={"TMPDIR": str(temporary)})
    running.wait_for_output("(stop with Ctrl-C)", stream="err")
    address = running.err.split(" at ")[1].split()[0]

    with urlopen(f"{address}/v1/conversations?limit=100") as response:
        titles = [one["title"] for one in json.load(response)["conversations"]]
    with urlopen(f"{address}/") as response:
        page = response.read().decode()
    assert len(titles) == 33
    assert "Fix the flaky test in test_upload.py" in titles
    assert not any("Not for the demo" in title for title in titles)
    assert "Fix the flaky test in test_upload.py" in page
    assert list(temporary.iterdir())

    running.signal(number)

    assert running.finish().code in (0, 130, 143)
    assert list(temporary.iterdir()) == []
