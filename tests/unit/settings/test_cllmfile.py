"""Reading one Cllmfile; errors have file and line."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.errors import SettingsError
from cllm.settings.cllmfile import (
    MAX_BYTES,
    find_line,
    find_variables,
    read_cllmfile,
    substitute_variables,
)


def read(path: Path, content: str | bytes):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_cllmfile(path, in_user_folder=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "Cllmfile.yml"


@pytest.mark.parametrize("content", ["", "\n", "# only a comment\n", "---\n", "null", "{}"])
def test_an_empty_file_has_no_settings(path, content):
    file = read(path, content)

    assert file is not None
    assert (file.path, file.content, file.in_user_folder) == (path, {}, True)


@pytest.mark.parametrize("place", ["missing.yml", "file/Cllmfile.yml"])
def test_a_missing_file_is_none(tmp_path, place):
    (tmp_path / "file").touch()

    assert read_cllmfile(tmp_path / place, in_user_folder=True) is None


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("model: a\nstop: [1, 2\n", 3),
        ("model: a\n\tstop: x\n", 2),
        ("model: 'a\n", 2),
        ("a: b: c\n", 1),
        ("model: *unknown\n", 1),
        ("x: 1\n{[1]: 2}: 3\n", 2),
        ("model: !!python/object:os.system x\n", 1),
        ('model: "\\ud800"\n', 1),
        ("- a\n- b\n", 1),
        ("just a text\n", 1),
        ("5", 1),
    ],
)
def test_bad_yaml_is_refused_with_file_and_line(path, content, line):
    with pytest.raises(SettingsError) as caught:
        read(path, content)
    assert caught.value.path == str(path)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"Configuration error: {path}, line {line}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"model: \xff",
        b"model: a\x00b",
        b"1: a",
        b"true: a",
        b"null: a",
        b"model: 2025-13-45",
        b"seed: " + b"9" * 5000,
        b"a: " + b"x" * MAX_BYTES,
        b'a: !!int ""',
        b'a: !!float ""',
        b"a: !!bool x",
        b"a: !!timestamp x",
        b"a: !!binary x",
        b"a: !!set [x]",
        b"a: !!set {x, y}",
        b"a: !!binary aGk=",
        b"a: !!pairs [x: 1]",
        b"extra_headers: {yes: a}",
        b"a: {b: {null: 1}}",
        b"a: [{2.5: 1}]",
    ],
    ids=lambda content: content[:24].decode("latin-1"),
)
def test_other_unusable_content_is_refused_with_the_file(path, content):
    with pytest.raises(SettingsError) as caught:
        read(path, content)
    assert caught.value.path == str(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bug", [TypeError, AttributeError, ValueError])
def test_a_bug_in_reading_a_file_is_not_reported_as_a_broken_file(path, bug, monkeypatch):
    def fail(_event):
        raise bug("not the file's fault")

    monkeypatch.setattr("cllm.settings.cllmfile._is_long_number", fail)
    with pytest.raises(bug, match="not the file's fault"):
        read(path, "model: openai/gpt-4o")


def test_a_folder_is_not_a_cllmfile(path):
    path.mkdir()

    with pytest.raises(SettingsError, match="not a regular file"):
        read_cllmfile(path, in_user_folder=True)


def bomb(item: str, width: int, height: int) -> str:
    """Few lines that stand for `width ** height` values."""
    lines = [f"a0: &a0 [{', '.join([item] * width)}]"]
    for level in range(1, height):
        inner = ", ".join([f"*a{level - 1}"] * width)
        lines.append(f"a{level}: &a{level} [{inner}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "content",
    [
        bomb("lol", 10, 9),
        bomb("lol", 10, 9).replace("[", "{x: [").replace("]", "]}"),
        "a: &a [*a]",
        "a: &a {b: *a}",
        "a: &a [[[[*a, *a]]]]",
        "\n".join(
            f"a{n}: &a{n} !!pairs [{', '.join([f'x: *a{n - 1}' if n else 'x: lol'] * 20)}]"
            for n in range(4)
        ),
        "a: &a !!pairs [x: *a]",
        "a: &a !!omap [x: *a]",
    ],
    ids=[
        "bomb",
        "mappings",
        "list in itself",
        "mapping in itself",
        "deep",
        "pairs",
        "pair",
        "omap",
    ],
)
def test_a_small_file_that_expands_too_far_is_refused(path, content):
    with pytest.raises(
        SettingsError, match=r"more than 100000 values|not a string, number|aliases"
    ) as caught:
        read(path, content)
    assert caught.value.path == str(path)


def test_ordinary_aliases_are_allowed(path):
    file = read(path, "variables: &v {a: 1}\nserver: *v\nwindow: {<<: *v, b: 2}\n")

    assert file is not None
    assert file.content["window"] == {"a": 1, "b": 2}


@pytest.mark.parametrize("depth", [400, 600, 900, 20_000])
def test_deep_nesting_is_read_or_refused_and_never_a_traceback(path, depth):
    content = "a: " + "[" * depth + "]" * depth

    try:
        file = read(path, content)
    except SettingsError as error:
        assert error.path == str(path)  # noqa: PT017 - not raising is as good
    else:
        assert file is not None
        assert substitute_variables(file.content, {})
        assert find_variables(file.content) == frozenset()


def test_the_deepest_nesting_that_fits_does_not_end_the_process(path):
    path.write_text("a: " + "[" * 500_000, encoding="utf-8")
    program = (
        "import sys; from pathlib import Path\n"
        "from cllm.core.errors import SettingsError\n"
        "from cllm.settings.cllmfile import read_cllmfile\n"
        "try: read_cllmfile(Path(sys.argv[1]), in_user_folder=True)\n"
        "except SettingsError: print('refused')\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "refused\n")


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("model: a", "model", 1),
        ("x: 1\n\n'model': a", "model", 3),
        ('"model" : a', "model", 1),
        ("  model: a\nmodels: b", "model", None),
        ("a.b: 1", "a.b", 1),
        ("axb: 1", "a.b", None),
    ],
)
def test_the_line_of_a_key_is_found(path, text, key, expected):
    path.write_text(text, encoding="utf-8")

    assert find_line(path, key) == expected


def test_a_missing_file_has_no_line_numbers(path):
    assert find_line(path, "model") is None


def test_variables_are_found_everywhere():
    value = {"a": ["${ONE} and ${TWO}"], "b": {"c": "${ONE}"}, "d": 5, "e": "$THREE ${}"}

    assert find_variables(value) == {"ONE", "TWO"}


@given(
    st.dictionaries(st.text(), st.text(alphabet="${}AB_ x") | st.integers() | st.lists(st.text()))
)
def test_unset_variables_leave_the_content_unchanged(content):
    assert substitute_variables(content, {}) == content


@given(
    st.binary(max_size=60) | st.text(alphabet="a:- \n[]{}&*!'\"|>#", max_size=60).map(str.encode)
)
def test_any_bytes_are_settings_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.yml"
    try:
        file = read(path, content)
    except SettingsError as error:
        assert "\n" not in str(error)  # noqa: PT017 - not raising is as good
    else:
        assert file is not None
        assert all(isinstance(key, str) for key in file.content)
