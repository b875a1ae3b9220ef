"""The description of the package for PyPI: the README with absolute links, and the project's links.

Reads GITHUB_SERVER_URL and GITHUB_REPOSITORY, which GitHub Actions sets. Without them, the README
stays as it is.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)]+)\)")
# A reader of PyPI has no source tree.
SOURCE_SECTION = re.compile(r"^## Quick start\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
UPGRADE_SENTENCE = re.compile(r"To upgrade, repeat .*?`pipx upgrade cllm`\.", re.DOTALL)
UPGRADE = (
    "To upgrade, run `pipx upgrade cllm`, `uv tool upgrade cllm` or, in the virtual environment, "
    "`pip install --upgrade 'cllm[local,server]'`."
)
INSTALLATION = {
    ", without an account. Run this in the folder of this README:": ", without an account:",
    "'.[": "'cllm[",
    "`make docs` builds the same pages as a site with search. ": "",
}


def render_description(readme: str, url: str, tag: str) -> str:
    """Return the README with links and images of this version, and the name of the package."""

    def replace(found: re.Match[str]) -> str:
        image, text, path = found.groups()
        return f"{image}[{text}]({url}/{'raw' if image else 'blob'}/{tag}/{path})"

    readme = UPGRADE_SENTENCE.sub(UPGRADE, SOURCE_SECTION.sub("", readme))
    for old, new in INSTALLATION.items():
        readme = readme.replace(old, new)
    return LINK.sub(replace, readme)


def list_urls(url: str, tag: str, repository: str) -> dict[str, str]:
    """Return the links of the project. `.github/workflows/docs.yml` publishes the documentation."""
    owner, name = repository.split("/")
    return {
        "Documentation": f"https://{owner.lower()}.github.io/{name}/",
        "Changelog": f"{url}/blob/{tag}/CHANGELOG.md",
        "Repository": url,
        "Issues": f"{url}/issues",
    }


class CustomMetadataHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = os.environ.get("GITHUB_REPOSITORY")
        if repository:
            server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
            url, tag = f"{server}/{repository}", f"v{self._read_version()}"
            readme = render_description(readme, url, tag)
            metadata["urls"] = list_urls(url, tag, repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}

    def _read_version(self) -> str:
        source = Path(self.root, "src", "cllm", "__init__.py").read_text(encoding="utf-8")
        (version,) = re.findall(r'^__version__ = "(.*)"$', source, re.MULTILINE)
        return str(version)
