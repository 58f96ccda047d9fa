"""Names as configuration and answers use them."""

import dns.exception
import dns.name
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rspdns.names import normal, to_text

LABELS = st.text("ab9_-", max_size=65)


@given(st.lists(LABELS, min_size=1, max_size=9).map(".".join))
def test_a_name_in_plain_letters_is_what_dnspython_reads(text: str) -> None:
    try:
        read = to_text(dns.name.from_text(text))
    except dns.exception.DNSException:
        with pytest.raises(ValueError, match="name"):
            normal(text)
        return
    plain = all(label == label.strip("-") for label in read.split("."))
    if plain and read:
        assert normal(text) == read
    elif read:
        with pytest.raises(ValueError, match="may hold only"):
            normal(text)


@pytest.mark.parametrize(("labels", "last"), [(3, 61), (3, 62)])
def test_a_name_may_have_255_bytes(labels: int, last: int) -> None:
    text = ".".join(["a" * 63] * labels + ["b" * last])
    if last == 61:
        assert normal(text) == normal(text.upper() + ".") == text
    else:
        with pytest.raises(ValueError, match="255"):
            normal(text)
