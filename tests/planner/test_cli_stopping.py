"""Ctrl-C: once for an orderly end, twice for one at once."""

from __future__ import annotations

import os
import signal

import pytest

from planner.cli.stopping import told_to_stop


def test_once_is_told_and_twice_interrupts() -> None:
    before, stops = signal.getsignal(signal.SIGINT), []
    with told_to_stop(lambda: stops.append(1)) as came:
        assert not came()
        os.kill(os.getpid(), signal.SIGINT)
        assert came()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert stops == [1, 1]
    assert signal.getsignal(signal.SIGINT) is before
