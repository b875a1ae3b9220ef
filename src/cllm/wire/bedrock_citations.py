"""Converse's citations in the words that Anthropic's clients know, whole or streamed alike.

A message in Bedrock's words keeps them as they came; this is how they are told. One whose place
has no word there, a page of the web, is not told: Anthropic's own carries a proof we do not have.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cllm.core.message import Text

CITED = "citationsContent"


class _Source(msgspec.Struct):
    text: str = ""


class _Place(msgspec.Struct, rename="camel"):
    start: int
    end: int
    document_index: int = 0
    search_result_index: int = 0


class _Citation(msgspec.Struct, rename="camel"):
    location: dict[str, Any]
    title: str | None = None
    source: str | None = None
    source_content: list[_Source] = []


# The type in Anthropic's words, and how it names where the cited piece starts and ends.
PLACES = {
    "documentChar": ("char_location", "start_char_index", "end_char_index"),
    "documentPage": ("page_location", "start_page_number", "end_page_number"),
    "documentChunk": ("content_block_location", "start_block_index", "end_block_index"),
    "searchResultLocation": ("search_result_location", "start_block_index", "end_block_index"),
}


def shared_citation(given: Any) -> dict[str, Any] | None:
    """A citation in Anthropic's words; None if it has no place that they can name."""
    try:
        citation = msgspec.convert(given, _Citation)
        kind = next((kind for kind in PLACES if kind in citation.location), None)
        if kind is None:
            return None
        place = msgspec.convert(citation.location[kind], _Place)
    except msgspec.ValidationError:
        return None
    name, start, end = PLACES[kind]
    cited = "".join(source.text for source in citation.source_content)
    said = {"type": name, "cited_text": cited, start: place.start, end: place.end}
    return said | _what(kind, citation, place)


def _what(kind: str, citation: _Citation, place: _Place) -> dict[str, Any]:
    """What was cited: a document of the prompt, or a result of a search."""
    if kind != "searchResultLocation":
        return {"document_index": place.document_index, "document_title": citation.title}
    index = place.search_result_index
    source = citation.source or ""
    return {"search_result_index": index, "source": source, "title": citation.title}


def citations_of(part: Text) -> list[Any]:
    """The citations of a text of any protocol that has them, in Anthropic's words."""
    cited = part.extra.get(CITED)
    if not isinstance(cited, Mapping):
        own = part.extra.get("citations")
        return own if isinstance(own, list) else []
    given = cited.get("citations")
    told = [shared_citation(citation) for citation in given] if isinstance(given, list) else []
    return [citation for citation in told if citation is not None]


def cited_text(citation: dict[str, Any]) -> Text:
    """A citation of the text at its place: a text of no length, which adds nothing but it."""
    return Text(text="", extra={"citations": [citation]})
