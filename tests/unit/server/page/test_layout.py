"""The document of the page."""

from markupsafe import Markup

from cllm.server.page.layout import html_response, render, render_page


def test_the_document_has_three_columns_and_escapes_its_title():
    html = render_page(
        title="<script>", view="list", list_column=Markup("<i>1</i>"), main=Markup("<b>2</b>")
    )

    assert "<script>" not in html.split("</title>")[0]
    assert '<nav id="list"' in html
    assert "<i>1</i>" in html
    assert '<main id="main" tabindex="-1"><b>2</b></main>' in html
    assert '<aside id="inspector"' in html


def test_the_base_style_sheet_is_before_the_others():
    html = render("error.html", title="x", report={"status": 404, "message": "No."})

    assert html.index("page.css") < html.index("</head>")
    assert 'href="/static/page.css"' in html.split('rel="stylesheet"')[1]


def test_nothing_in_the_policy_allows_inline_code_or_other_hosts():
    policy = html_response(Markup()).headers["content-security-policy"]

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "require-trusted-types-for 'script'" in policy


def test_a_part_has_the_title_of_its_document_in_a_header():
    response = html_response(Markup(), title="Straße 1\n2")

    assert response.headers["x-page-title"] == "Stra%C3%9Fe%201%0A2"
