"""The pause before a webhook is tried again. Pure: random numbers and time are arguments."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from random import Random

#: The pause after the first failure: about what a receiver takes to restart.
FIRST_S = 0.5


def retry_delay_s(
    failures: int, retry_s_max: float, random: Random, retry_after_s: float | None = None
) -> float:
    """Return the pause after so many failures in a row: doubling, capped, with jitter.

    Half of it is fixed and half is random, so that receivers that fail together are not tried
    together. `retry_after_s`, which the receiver asked for, is honoured up to the cap.
    """
    # The exponent is bounded, since 2.0 ** 1024 overflows: 60 doublings are past any cap.
    ceiling_s = min(retry_s_max, FIRST_S * 2.0 ** min(max(failures, 1) - 1, 60))
    delay_s = random.uniform(ceiling_s / 2, ceiling_s)
    if retry_after_s is None:
        return delay_s
    return max(delay_s, min(retry_after_s, retry_s_max))


def parse_retry_after(text: str, now: float) -> float | None:
    """Return a `Retry-After` header as seconds from `now` (since 1970); None if it is invalid.

    The header is a number of seconds or an HTTP date; a past date gives 0.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text)  # infinite if it has very many digits; the caller caps it
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    try:
        return max(0.0, at.timestamp() - now)
    except (OverflowError, OSError):
        return None
