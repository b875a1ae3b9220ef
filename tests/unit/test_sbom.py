"""The software bill of materials lists every locked dependency, and is reproducible."""

import json
import tomllib
from pathlib import Path

import pytest
from tests import sbom

import cllm

ROOT = Path(__file__).parents[2]
LOCK = """\
aiohttp==3.14.5 \\
    --hash=sha256:{first} \\
    --hash=sha256:{second}
jeepney==0.9.0 ; sys_platform == 'linux' \\
    --hash=sha256:{first}
""".format(first="a" * 64, second="b" * 64)


def test_each_locked_package_is_a_component_with_version_hashes_and_marker():
    first, second = sbom.read_lock(LOCK)

    assert first["purl"] == "pkg:pypi/aiohttp@3.14.5"
    (files,) = first["externalReferences"]
    assert [one["content"][0] for one in files["hashes"]] == ["a", "b"]
    assert second["properties"][0]["value"] == "sys_platform == 'linux'"


def test_an_unknown_line_is_an_error():
    with pytest.raises(ValueError, match="unknown line: -e"):
        list(sbom.read_lock(f"{LOCK}-e ."))


def test_the_file_names_cllm_and_every_direct_dependency(tmp_path):
    target = tmp_path / "new" / "cllm.cdx.json"
    sbom.main(ROOT / "requirements" / "all.txt", target)
    written = target.read_bytes()
    sbom.main(ROOT / "requirements" / "all.txt", target)
    bom = json.loads(written)

    assert target.read_bytes() == written
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    assert bom["metadata"]["component"]["version"] == cllm.__version__
    names = {component["name"] for component in bom["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for line in project["dependencies"]:
        assert line.partition(">")[0].lower().replace("_", "-") in names
    assert {"botocore", "keyring", "xllamacpp", "asyncpg", "uvicorn"} <= names
    references = [component["bom-ref"] for component in bom["components"]]
    assert bom["dependencies"][0]["dependsOn"] == references
    assert len(set(references)) == len(references)
