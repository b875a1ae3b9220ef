"""GET /docs: the description as a page."""

import re

from tests.server_app import open_server_app

from cllm.server.openapi.description import build_description


async def test_the_page_lists_every_route_and_loads_nothing_else(tmp_path):
    async with open_server_app(tmp_path) as server:
        response = await server("GET", "/docs")

    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    for path in build_description()["paths"]:
        assert path in response.text
    assert not re.search(r"<(script|link|img|iframe)|https?://", response.text)
    for target in re.findall(r'href="#([^"]+)"', response.text):
        assert f'id="{target}"' in response.text
    summaries = re.findall(r"<summary>.*</summary>", response.text)
    assert any("unless <code>store</code> is false" in each for each in summaries)
    assert not any("`" in each for each in summaries)
