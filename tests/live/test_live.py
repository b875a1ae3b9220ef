"""Short checks against real services, by `make live` only. One without a key is skipped."""

import pytest
import yaml
from tests.command import Cllm
from tests.home import Home
from tests.live.checks import CHECKS, LiveCommand
from tests.live.services import SERVICES, current_environment


@pytest.mark.live
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_a_real_service(service, check, tmp_path):
    environ = current_environment()
    if problem := service.find_problem(environ):
        pytest.skip(f"{service.name}: {problem}")
    home = Home(tmp_path)
    (home.path / ".cllm").mkdir()
    settings = yaml.safe_dump(service.build_settings(environ))
    (home.path / ".cllm" / "Cllmfile.yml").write_text(settings, encoding="utf-8")
    cllm = Cllm(home)
    try:
        check(LiveCommand(cllm, service.find_model(environ), service.select_environment(environ)))
    finally:
        cllm.close()
