"""All texts of the page, for templates and scripts."""

TEXTS = {
    "conversations": "Conversations",
    "usage": "Usage",
}
