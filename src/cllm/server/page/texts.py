"""All texts of the page, for templates and scripts."""

TEXTS = {
    # The document, the list and the key.
    "back_to_list": "Back to the conversations",
    "close": "Close",
    "conversations": "Conversations",
    "error_title": "Error",
    "inspector": "What the model saw",
    "key_hint": "The key stays in this tab and is sent in a header only.",
    "key_label": "API key",
    "key_submit": "Continue",
    "key_title": "This server requires an API key",
    "key_without_script": "This form needs JavaScript. Without it, send the key in a header: "
    'curl -H "Authorization: Bearer KEY" with the address of this page.',
    "key_wrong": "The server does not accept this key; check it and enter it again.",
    "server_failed": "The server returned an error",
    "server_unreachable": "The server does not respond; check that it runs, then try again.",
    "shortcut_help": "Show all shortcuts",
    "shortcuts": "Keyboard shortcuts",
    "skip_to_main": "Skip to the conversation",
    "theme": "Colours",
    "theme_dark": "dark",
    "theme_light": "light",
    "theme_system": "as the system",
    "usage": "Usage",
}
