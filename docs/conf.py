"""Sphinx settings of the documentation site: `make docs`."""

import cllm

project = "cllm"
author = "the cllm authors"
version = release = cllm.__version__
extensions = ["myst_parser", "sphinx_copybutton"]
nitpicky = True

# GitHub shows the same files, so links are relative paths of Markdown files and their headings.
myst_heading_anchors = 4
# Indented blocks are output or settings, not Python.
highlight_language = "text"

html_theme = "furo"
html_title = f"cllm {release}"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False

# The button copies the commands of a console block, without prompts and output.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
