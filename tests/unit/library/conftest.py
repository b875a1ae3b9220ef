"""The library in this process, without settings of the person who runs the tests."""

import pytest

from cllm.library.loop import background
from cllm.library.session import session


@pytest.fixture(scope="session")
def empty_home(tmp_path_factory):
    """An empty home and current directory for the session of the library."""
    place = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(place))
        patch.chdir(place)
        session()
    yield place
    session.close()
    background.close()
