from __future__ import annotations

import pickle

import pytest

from jsonbus import errors


@pytest.mark.parametrize(
    "error",
    [
        errors.ChannelRefusedError("garage", "files", "ambiguous", "", ("a", "b")),
        errors.ChannelClosedError("garage", "files", "garage closed it"),
        errors.ChannelTimeoutError("garage", "files", "garage did not answer", 1.5),
        errors.MessageTooLargeError("garage", "files", 70_000_000, 67_108_864),
        errors.RequestTimeoutError("add", 1.5),
        errors.RecordingError("run.mcap", "it is no recording"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_made_again_from_its_arguments(error: Exception) -> None:
    for again in (type(error)(*error.args), pickle.loads(pickle.dumps(error))):
        assert (str(again), vars(again)) == (str(error), vars(error))
