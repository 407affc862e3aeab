"""The browser of tests/browser: Debian's Chromium, installed where that is possible."""

from __future__ import annotations

import os
import shutil
import subprocess

from _setup import say

#: Without a network apt-get may wait for minutes, for each of its servers.
UPDATE_S_MAX = 120.0
INSTALL_S_MAX = 900.0
PATIENCE = ("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20")

#: Names of the command, in order of preference.
NAMES = ("chromium", "chromium-browser", "google-chrome")


def need_browser() -> None:
    """Install Chromium if it is missing. Where that is not possible, its tests are skipped."""
    if any(map(shutil.which, NAMES)):
        return
    if os.name != "posix" or os.geteuid() != 0 or not shutil.which("apt-get"):
        say("no chromium here: tests/browser will be skipped")
        return
    say("installing chromium for tests/browser (apt-get), once; that takes a minute")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for limit_s, words in (
        (UPDATE_S_MAX, ["update"]),
        (INSTALL_S_MAX, ["install", "-y", "--no-install-recommends", "chromium"]),
    ):
        try:
            done = subprocess.run(
                ["apt-get", "-q", *PATIENCE, *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            say(f"apt-get {words[0]} took too long, and tests/browser will be skipped")
            return
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            say(f"apt-get {words[0]} failed, and tests/browser may be skipped: {last}")
