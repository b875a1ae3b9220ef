"""Writes a CycloneDX file of cllm and its locked dependencies: `python -m tests.sbom LOCK FILE`.

The same lock file always results in the same bytes. Needs only the standard library.
"""

import json
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)==(\S+?)(?: ; ([^\\]+?))?(?: \\)?$")
HASH = re.compile(r"^\s+--hash=sha256:([0-9a-f]{64})")


def read_lock(text: str) -> Iterator[dict[str, Any]]:
    """Yield a component for each requirement of a lock file."""
    component: dict[str, Any] | None = None
    for line in text.splitlines():
        if found := REQUIREMENT.match(line):
            if component:
                yield component
            component = describe_package(found[1], found[2], marker=found[3])
        elif (digest := HASH.match(line)) and component:
            files = component.setdefault("externalReferences", [])
            if not files:
                files.append({"type": "distribution", "url": component["purl"], "hashes": []})
            files[0]["hashes"].append({"alg": "SHA-256", "content": digest[1]})
        elif line.strip():
            raise ValueError(f"The lock file has an unknown line: {line}")
    if component:
        yield component


def describe_package(name: str, version: str, *, marker: str | None = None) -> dict[str, Any]:
    """Return a component. A lock file has one hash per wheel or sdist, so none is the package's."""
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    if marker:
        component["properties"] = [{"name": "cllm:python-marker", "value": marker}]
    return component


def build_bom(lock: str, version: str) -> dict[str, Any]:
    components = list(read_lock(lock))
    cllm = describe_package("cllm", version) | {
        "type": "application",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    references = [component["bom-ref"] for component in components]
    seed = json.dumps([cllm, components], sort_keys=True)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, seed)}",
        "version": 1,
        "metadata": {"component": cllm},
        "components": components,
        "dependencies": [
            {"ref": cllm["bom-ref"], "dependsOn": references},
            *({"ref": reference} for reference in references),
        ],
    }


def read_version() -> str:
    """Return the version from the source, so that cllm does not have to be installed."""
    source = (ROOT / "src" / "cllm" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    if found is None:
        raise ValueError("src/cllm/__init__.py has no __version__.")
    return found[1]


def main(lock: Path, target: Path) -> None:
    bom = build_bom(lock.read_text(encoding="utf-8"), read_version())
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bom, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:3]))
