"""Which names may stand for a conversation."""

import pytest

from cllm.core.conversation import check_id, is_valid_id
from cllm.core.errors import InvalidIdError


@pytest.mark.parametrize("ref", ["a", "A-b_9", "-", "c-20261115-120000-1a2b", "x" * 128])
def test_letters_digits_dashes_and_underscores_are_a_valid_id(ref):
    assert is_valid_id(ref)
    assert check_id(ref) == ref


@pytest.mark.parametrize(
    "ref",
    ["", "../../x", "a/b", "a.json", "a b", "a\n", "\na", "ä", "\u0661", "a\x00", "x" * 129, "~"],
)
def test_other_characters_are_no_valid_id(ref):
    assert not is_valid_id(ref)
    with pytest.raises(InvalidIdError) as caught:
        check_id(ref)
    assert caught.value.ref == ref
