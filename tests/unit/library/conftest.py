"""The library in this process, in an empty place: no settings of whoever runs the tests."""

import pytest

from cllm.library.loop import background
from cllm.library.session import session


@pytest.fixture(scope="session")
def empty_place(tmp_path_factory):
    """A home and a current directory with nothing in them, for the session of the library."""
    place = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(place))
        patch.chdir(place)
        session()
    yield place
    session.close()
    background.close()
