"""Missing optional packages."""

import pytest

from cllm.core.errors import MissingExtraError
from cllm.core.extras import require_extra


def test_a_missing_package_names_the_extra_to_install():
    with (
        pytest.raises(MissingExtraError, match=r"install .*\[postgres\]'") as raised,
        require_extra("postgres", feature="The PostgreSQL store"),
    ):
        raise ModuleNotFoundError(name="asyncpg.pool")

    assert raised.value.extra == "postgres"


def test_a_missing_module_of_cllm_is_a_bug():
    with pytest.raises(ModuleNotFoundError), require_extra("postgres", feature="It"):
        raise ModuleNotFoundError(name="cllm.stores.missing")


def test_other_errors_are_not_changed():
    with pytest.raises(ImportError, match="broken"), require_extra("postgres", feature="It"):
        raise ImportError("broken")
