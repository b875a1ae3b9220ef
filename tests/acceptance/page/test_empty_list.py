"""The commands of an empty list fill it."""

import html
import re
import shlex
import subprocess
from collections.abc import Callable

from tests.command import Cllm
from tests.fake_provider import WAIT
from tests.server_process import Server


def test_the_commands_of_an_empty_list_fill_it(serve: Callable[..., Server], cllm: Cllm):
    server = serve()
    page = server("GET", "/?part=rows").body.decode()
    commands = re.findall(r'class="command"><code[^>]*>(.*?)</code>', page)
    ask, chat, client = [shlex.split(html.unescape(command)) for command in commands]

    assert chat == ["cllm", "chat"]
    cllm(*ask[1:])
    result = subprocess.run(client, capture_output=True, check=False, timeout=WAIT)

    assert b"echo: Hello" in result.stdout
    rows = server("GET", "/?part=rows").body.decode()
    assert rows.count('class="row"') == 2
    assert rows.count("Why do cats purr?") > 0
    assert 'class="command"' not in rows
