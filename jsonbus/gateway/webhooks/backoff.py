"""How long to wait before a webhook is tried again. Pure: the dice and the time are given."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from random import Random

#: After the first failure: a receiver that restarts is back after about so long.
FIRST_S = 0.5


def retry_delay_s(
    failures: int, retry_s_max: float, random: Random, retry_after_s: float | None = None
) -> float:
    """The pause after so many failures in a row: doubling, capped, with jitter.

    Half of it is fixed, half is diced: receivers that fail together are not tried together, and
    none at once. `retry_after_s`, what the receiver asked for, is honoured up to the cap.
    """
    # The exponent is bounded, since 2.0 ** 1024 overflows: 60 doublings are past any cap.
    ceiling_s = min(retry_s_max, FIRST_S * 2.0 ** min(max(failures, 1) - 1, 60))
    delay_s = random.uniform(ceiling_s / 2, ceiling_s)
    if retry_after_s is None:
        return delay_s
    return max(delay_s, min(retry_after_s, retry_s_max))


def parse_retry_after(text: str, now: float) -> float | None:
    """A `Retry-After` header, in seconds from `now` (since 1970), never negative; None if wrong.

    It is a number of seconds or an HTTP date.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text)  # infinite, if it has very many digits: the cap makes it finite
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    try:
        return max(0.0, at.timestamp() - now)
    except (OverflowError, OSError):
        return None
