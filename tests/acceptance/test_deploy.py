"""The files in `deploy/`: checked by the programs that read them, where these are installed."""

import contextlib
import http.client
import json
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.fake_provider import FakeProvider
from tests.fake_provider.server import closed_port
from tests.server_process import COMPLETIONS, Server, completion_body
from tests.waits import wait_until

from cllm.cli import serve

DEPLOY = Path(__file__).parents[2] / "deploy"


def read(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def is_accepted(arguments: list[str]) -> bool:
    """Whether `cllm` accepts these arguments; `--help` keeps it from listening."""
    assert arguments[0] == "serve"
    return CliRunner().invoke(serve.command, [*arguments[1:], "--help"]).exit_code == 0


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path):
    unit = tmp_path / "cllm.service"
    # It checks that the program exists.
    text = read("cllm.service").replace("/opt/cllm/bin/cllm", sys.executable)
    unit.write_text(text, encoding="utf-8")

    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )

    warnings = [line for line in result.stderr.splitlines() if "cllm.service" in line]
    assert warnings == []


def test_the_commands_of_unit_and_image_are_valid():
    (start,) = re.findall(r"^ExecStart=\S+ (.*)$", read("cllm.service"), re.MULTILINE)
    (command,) = re.findall(r"^CMD (\[.*\])$", read("Containerfile"), re.MULTILINE)

    assert is_accepted(start.split())
    assert is_accepted(json.loads(command))


def list_copies() -> list[tuple[list[str], str]]:
    """Return the paths that each COPY takes from the build context, and its target."""
    rows = re.findall(r"^COPY (?!--)(.*) (\S+)$", read("Containerfile"), re.MULTILINE)
    return [(sources.split(), target) for sources, target in rows]


def is_ignored(path: str) -> bool:
    """Whether `.dockerignore` leaves a path out of the build context: the last pattern counts."""
    lines = (DEPLOY.parent / ".dockerignore").read_text(encoding="utf-8").splitlines()
    ignored = False
    for line in lines:
        pattern = line.removeprefix("!").removeprefix("**/")
        each = Path(path)
        names = [*each.parts] if "**/" in line else [str(part) for part in (each, *each.parents)]
        if line and not line.startswith("#") and any(fnmatch(name, pattern) for name in names):
            ignored = not line.startswith("!")
    return ignored


def test_the_build_context_contains_only_what_the_image_copies():
    copied = [source for sources, _ in list_copies() for source in sources]
    others = (".git/HEAD", ".venv/bin/python", ".venv-docs/x", ".cache/x", "dist/cllm.whl")

    assert [path for path in copied if is_ignored(path)] == []
    assert not is_ignored("src/cllm/server/page/static/page.css")
    for path in (*others, "tests/conftest.py", "docs/index.md", "src/cllm/__pycache__/x.pyc"):
        assert is_ignored(path)


def test_the_files_that_the_image_copies_build_the_package(tmp_path: Path):
    for sources, target in list_copies():
        folder = tmp_path / target.strip("/")
        for source in map(DEPLOY.parent.joinpath, sources):
            if source.is_dir():
                shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                folder.mkdir(exist_ok=True)
                shutil.copy(source, folder)

    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(command, cwd=tmp_path / "source", check=True, timeout=120)

    assert list((tmp_path / "source" / "dist").glob("cllm-*.whl"))


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[Callable[..., http.client.HTTPSConnection]]:
    """Starts nginx with a file of `deploy/` in front of ports on loopback."""
    if shutil.which("nginx") is None:
        pytest.skip("needs nginx")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost"
    options = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(cert), "-keyout", str(key)]
    subprocess.run([*command.split(), *options], check=True, capture_output=True)
    started: list[subprocess.Popen[bytes]] = []

    def start(*ports: int, name: str = "nginx.conf") -> http.client.HTTPSConnection:
        own_port = closed_port()
        text = re.sub(r"(ssl_certificate) .*;", rf"\1 {cert};", read(name))
        text = re.sub(r"(ssl_certificate_key) .*;", rf"\1 {key};", text)
        text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{own_port} ssl;")
        text = text.replace("listen [::]:443 ssl;", "").replace(
            "10.0.0.12:3000", f"127.0.0.1:{ports[-1]}"
        )
        text = re.sub(r"(127\.0\.0\.1|10\.0\.0\.11):3000", f"127.0.0.1:{ports[0]}", text)
        folders = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"{name}_temp_path {tmp_path}/{name}; " for name in folders)
        main = tmp_path / "nginx.conf"
        main.write_text(
            f"daemon off; master_process off; pid {tmp_path}/pid; error_log stderr; events {{}} "
            f"http {{ access_log off; {paths} {text} }}",
            encoding="utf-8",
        )
        started.append(subprocess.Popen(["nginx", "-c", main, "-e", "stderr"]))
        context = ssl.create_default_context(cafile=cert)
        connection = http.client.HTTPSConnection("127.0.0.1", own_port, context=context, timeout=30)

        def is_listening() -> bool:
            with contextlib.suppress(OSError):
                connection.connect()
                return True
            return False

        assert wait_until(is_listening)
        return connection

    yield start
    for process in started:
        process.terminate()
        process.wait()


def test_nginx_forwards_each_event_at_once(
    serve: Callable[..., Server],
    provider: FakeProvider,
    nginx: Callable[..., http.client.HTTPSConnection],
):
    server = serve(server={"trusted_proxies": ["127.0.0.1"], "allowed_hosts": ["127.0.0.1"]})
    gate = provider.queue_held_reply("First ", "second.", at=1)
    connection = nginx(server.port)
    body = completion_body(("user", "Hello."), stream=True)

    connection.request("POST", COMPLETIONS, json.dumps(body))
    response = connection.getresponse()
    first = response.readline()
    gate.open()
    rest = response.read()
    connection.request("GET", "/metrics")
    metrics = connection.getresponse()
    metrics.read()
    connection.close()

    assert b"First " in first
    assert rest.endswith(b"data: [DONE]\n\n")
    assert metrics.status == 403


@pytest.mark.parametrize("name", ["nginx.conf", "nginx-several.conf"])
def test_nginx_on_another_port_forwards_requests_of_the_web_page(
    serve: Callable[..., Server],
    nginx: Callable[..., http.client.HTTPSConnection],
    name: str,
):
    server = serve(server={"trusted_proxies": ["127.0.0.1"], "allowed_hosts": ["127.0.0.1"]})
    connection = nginx(server.port, name=name)
    body = json.dumps(completion_body(("user", "Hello.")))

    headers = {"Origin": f"https://127.0.0.1:{connection.port}"}
    connection.request("POST", COMPLETIONS, body, headers)
    response = connection.getresponse()
    text = response.read()
    connection.close()

    assert response.status == 200, text


def test_nginx_uses_the_other_server_if_one_is_down(
    serve: Callable[..., Server],
    nginx: Callable[..., http.client.HTTPSConnection],
):
    server = serve(server={"trusted_proxies": ["127.0.0.1"], "allowed_hosts": ["127.0.0.1"]})
    connection = nginx(closed_port(), server.port, name="nginx-several.conf")
    body = json.dumps(completion_body(("user", "Hello.")))

    statuses = []
    for method, path in [("POST", COMPLETIONS)] * 3 + [("GET", "/v1/imports"), ("GET", "/metrics")]:
        connection.request(method, path, body if method == "POST" else None)
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    connection.close()

    assert statuses == [200, 200, 200, 200, 403]
