"""What is told of requests to OpenAI: a code and a sentence for each reason.

A table. The codes are those of every provider; the sentences say why it is so at OpenAI.
"""

MAX_STOP = 4

SENTENCES = {
    "blank": (
        "reasoning_filled",
        "In its thinking mode the provider refuses a tool call without reasoning; blank is sent.",
    ),
    "block": ("part_left_out", "A block of a kind that OpenAI does not have was left out."),
    "cache_mark": ("cache_mark_left_out", "OpenAI has no cache marks; it caches by itself."),
    "document": ("part_left_out", "OpenAI takes documents as data or by its own file id only."),
    "document_name": (
        "document_name_left_out",
        "A document of plain text is sent as text, without its name.",
    ),
    "effort_changed": (
        "effort_changed",
        "This model does not take that effort; the nearest is asked for.",
    ),
    "error_flag": (
        "error_flag_left_out",
        "A tool message cannot say that a tool failed; only its text is sent.",
    ),
    "field": ("field_left_out", "OpenAI has no such field."),
    "image": ("part_left_out", "An image needs a URL, or data and a media type."),
    "media_moved": (
        "media_moved",
        "OpenAI's tool messages hold text only; the rest follows in a user message.",
    ),
    "message": ("message_left_out", "Nothing of a message can be said to OpenAI."),
    "parallel_without_tools": (
        "parameter_left_out",
        "OpenAI takes this only together with tools.",
    ),
    "parameter_left_out": (
        "parameter_left_out",
        "This model does not take that parameter while it thinks.",
    ),
    "part": ("part_left_out", "A message of this role cannot hold such a part at OpenAI."),
    "reasoning": (
        "thinking_left_out",
        "The provider does not take this past reasoning back; it is not sent.",
    ),
    "sealed": (
        "thinking_left_out",
        "Sealed thinking can be read only by the provider that wrote it; it is not sent.",
    ),
    "signature": (
        "signature_left_out",
        "A signature is valid only at the provider that wrote it; the thinking is sent as text.",
    ),
    "stop": ("parameter_changed", f"OpenAI takes at most {MAX_STOP} stop sequences, not more."),
    "thinking": (
        "thinking_left_out",
        "The provider takes no past thinking back; it is not sent.",
    ),
    "thinking_changed": (
        "thinking_changed",
        "OpenAI knows efforts, not budgets; the nearest effort is asked for.",
    ),
    "thinking_disabled": ("thinking_disabled", "This model cannot be asked to think so."),
    "thinking_kept": (
        "thinking_kept",
        "This model cannot be kept from thinking; the least effort is asked for.",
    ),
    "tool_choice_without_tools": (
        "tool_choice_left_out",
        "OpenAI takes this only together with tools.",
    ),
    "url_document": (
        "part_changed",
        "OpenAI takes no document by its address; the address is sent as text.",
    ),
}
