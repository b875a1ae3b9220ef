"""Markdown as HTML: what is rendered, and hostile texts."""

import pytest
from tests.hostile_texts import HOSTILE_TEXTS, PIXEL, PageParser, find_problems
from tests.server_app import open_server_app

from cllm.server.page.markdown import (
    MAX_IMAGE,
    MAX_MARKDOWN,
    is_data_image,
    is_link,
    render_image,
    render_markdown,
)

OUTGOING = 'rel="noopener noreferrer nofollow" target="_blank"'


class TestHostileTexts:
    def test_there_are_at_least_forty(self):
        assert len(set(HOSTILE_TEXTS)) >= 40

    @pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
    def test_the_html_has_only_known_tags_and_attributes(self, text):
        assert find_problems(render_markdown(text)) == []

    @pytest.mark.parametrize("index", range(26))
    def test_raw_html_is_shown_as_text(self, index):
        text = HOSTILE_TEXTS[index]

        shown = PageParser(render_markdown(text)).text

        assert shown.strip() == text

    def test_an_event_handler_is_a_problem(self):
        assert find_problems("<p onclick=x>") == ["<p> is open", "onclick='x' of <p>"]
        assert find_problems("<a href='javascript:x'></a>") == ["href='javascript:x'"]
        assert find_problems("<img src='http://127.0.0.9/'>") == ["src='http://127.0.0.9/'"]
        assert find_problems("</p><!-- x --><script></script>") == [
            "</p> closes no element",
            "a comment:  x ",
            "<script>",
        ]


class TestLineBreaks:
    TEXT = "one\ntwo\n\n- three\n  four\n\n```\nfive\nsix\n```\n"

    def test_a_reply_joins_lines(self):
        assert "one\ntwo" in render_markdown(self.TEXT)
        assert "<br" not in render_markdown(self.TEXT)

    def test_line_breaks_are_shown_if_requested(self):
        html = render_markdown(self.TEXT, has_breaks=True)

        assert "one<br />\ntwo" in html
        assert "three<br />\nfour" in html
        assert html.count("<br />") == 2
        assert find_problems(html) == []


class TestLinks:
    @pytest.mark.parametrize("url", ["http://a.example", "HTTPS://a.example", "mailto:a@b.example"])
    def test_web_and_mail_addresses_are_links_to_a_new_tab(self, url):
        assert f'href="{url}" {OUTGOING}>x</a>' in render_markdown(f"[x]({url})")

    @pytest.mark.parametrize("url", ["/c/1", "//a.example", "ftp://a.example", "file:///etc", "#x"])
    def test_other_addresses_are_text(self, url):
        assert "<a" not in render_markdown(f"[x]({url})")
        assert not is_link(url)

    def test_addresses_in_text_are_links_without_the_punctuation_after_them(self):
        html = render_markdown(
            "See (https://a.example/x_(y)). And https://b.example, or `http://c`"
        )

        links = [
            element.attributes["href"]
            for element in PageParser(html).elements
            if element.tag == "a"
        ]
        assert links == ["https://a.example/x_(y)", "https://b.example"]

    def test_an_address_in_brackets_does_not_contain_the_bracket(self):
        assert 'href="https://a.example/x"' in render_markdown("(https://a.example/x).")

    def test_links_are_not_nested(self):
        html = render_markdown(
            "[![badge](https://a.example/b.svg) https://c.example](https://d.example)"
        )

        assert html.count("<a ") == 1
        assert "badge" in html


class TestImages:
    def test_an_image_of_another_host_is_a_link(self):
        html = render_markdown("![A cat](https://a.example/cat.png)")

        assert "<img" not in html
        assert f'<a href="https://a.example/cat.png" {OUTGOING} class="image">A cat</a>' in html

    def test_a_data_url_is_an_image(self):
        html = render_markdown(f"![A dot](data:image/png;base64,{PIXEL})")

        assert f'<img src="data:image/png;base64,{PIXEL}" alt="A dot"' in html

    def test_a_link_to_a_data_url_leads_nowhere(self):
        assert "href" not in render_markdown(f"[A dot](data:image/png;base64,{PIXEL})")

    def test_large_and_other_data_urls_are_no_images(self):
        assert not is_data_image("data:image/png;base64," + "A" * MAX_IMAGE)
        assert not is_data_image("data:image/svg+xml;base64,AAAA")
        assert not is_data_image('data:image/png;base64,AAAA"x')
        assert render_image("file:///x", "<b>") == "&lt;b&gt;"


class TestBlocks:
    def test_headings_are_below_those_of_the_page(self):
        html = render_markdown("# One\n\n###### Six")

        assert '<h3 dir="auto">One</h3>' in html
        assert '<h6 dir="auto">Six</h6>' in html

    def test_table_cells_are_aligned_by_class(self):
        html = render_markdown("|a|b|c|\n|:-:|-:|-|\n|1|2|3|")

        assert '<div class="table" tabindex="0"><table>' in html
        assert '<td class="center" dir="auto">1</td>' in html
        assert '<td class="right" dir="auto">2</td>' in html
        assert "style" not in html

    def test_code_has_its_language(self):
        html = render_markdown("```python title=x\nreturn 1\n```")

        assert '<bdi class="language">python</bdi>' in html
        assert '<span class="k">return</span>' in html

    def test_controls_in_inline_code_are_visible(self):
        assert '<span class="control">U+202E</span>' in render_markdown("`a\u202eb`")

    def test_a_long_text_is_plain(self):
        html = render_markdown("**a** <b>" * (MAX_MARKDOWN // 8))

        assert html.startswith('<div class="plain" dir="auto">**a** &lt;b&gt;**a**')

    @pytest.mark.parametrize("text", [">" * 50 + "END", "- " * 50 + "END", "1. " * 30 + "END"])
    def test_a_deeply_nested_text_is_plain_and_complete(self, text):
        assert PageParser(render_markdown(text)).text == text

    def test_a_nested_text_is_rendered(self):
        assert render_markdown("> " * 10 + "END").count("<blockquote") == 10


class TestEndpoint:
    async def test_a_block_is_rendered(self, tmp_path):
        async with open_server_app(tmp_path) as server:
            short = await server("POST", "/render", content="**a** <b>")
            long = await server("POST", "/render", content="**a**\n\n" * 2_000)

        assert short.text == '<p dir="auto"><strong>a</strong> &lt;b&gt;</p>\n'
        assert short.headers["content-security-policy"].startswith("default-src 'none'")
        assert long.text.count("<strong>") == 2_000
