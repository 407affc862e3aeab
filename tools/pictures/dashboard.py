"""Draw dashboard.webp, the picture in README.md: a gateway, a small plant, a browser.

.venv/bin/python -m tools.pictures.dashboard               on loopback; takes 75 seconds
.venv/bin/python -m tools.pictures.dashboard FILE --light  elsewhere, in light colours

Needs the extras web and dev, and Chromium (see tools/_browser.py).
"""

from __future__ import annotations

import base64
import math
import os
import random
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import jsonbus
from tools._browser import NAMES
from tools._setup import ROOT

PICTURE = ROOT / "tools" / "pictures" / "dashboard.webp"
SIZE = {"width": 1280, "height": 760}
BYTES_MAX = 60_000

#: Far from the ports that people and tests use.
BUS_PORT = 24_600

#: So long the chart fills.
SCENE_S = 65.0

MACHINES = {"press-1": "hall-1", "press-2": "hall-1", "oven-3": "hall-2", "robot-7": "hall-2"}
TOPIC = "plant/hall-2/robot-7/state"


def main() -> int:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    scheme = "light" if "--light" in sys.argv else "dark"
    with ExitStack() as stack:
        url = _start_gateway(stack)
        buses = {
            name: stack.enter_context(jsonbus.Bus(name=name, port=BUS_PORT, interface="lo"))
            for name in (*MACHINES, "historian", "office")
        }
        buses["historian"].subscribe("plant/**", lambda message: None)
        buses["office"].subscribe(["plant/*/*/alarm", "plant/energy"], lambda message: None)
        page = _open_page(stack, f"{url}/?tab=topics&topic={TOPIC}", scheme)
        began_at = time.monotonic()
        while (passed_s := time.monotonic() - began_at) < SCENE_S:
            _play(buses, passed_s)
            page.wait_for_timeout(50)
            if 2 < passed_s < 3:
                _choose(page)
        size_bytes = _take(page, path)
    print(f"{path}: {size_bytes:,} bytes")
    return 0 if size_bytes <= BYTES_MAX else 1


def _start_gateway(stack: ExitStack) -> str:
    command = [sys.executable, "-m", "jsonbus", "gateway", "0", "--no-tcp", "--in-memory"]
    gateway = stack.enter_context(
        subprocess.Popen(
            [*command, "--name", "gateway"],
            cwd=ROOT,
            env={**os.environ, "JSONBUS_PORT": str(BUS_PORT), "JSONBUS_INTERFACE": "lo"},
            stderr=subprocess.PIPE,
            text=True,
        )
    )
    stack.callback(gateway.terminate)
    assert gateway.stderr is not None
    for line in gateway.stderr:
        if found := re.search(r"serves (http://\S+);", line):
            return found[1]
    sys.exit("the gateway did not start")


def _open_page(stack: ExitStack, url: str, scheme: str) -> Page:
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        sys.exit("chromium is not installed: python3 tools/test.py tests/browser does that")
    playwright = stack.enter_context(sync_playwright())
    launched = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
    stack.callback(launched.close)
    page = launched.new_page(viewport=SIZE, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(url)
    return page


def _choose(page: Page) -> None:
    for name in ("axes[0]", "axes[1]"):
        chip = page.locator(f".chip[data-key='{name}']")
        if chip.get_attribute("aria-pressed") == "false":
            chip.click()
    chip = page.locator(".chip[data-key=load]")
    if chip.get_attribute("aria-pressed") == "true":
        chip.click()


def _play(buses: dict[str, jsonbus.Bus], at: float) -> None:
    """One twentieth of a second in the plant."""
    for number, (machine, hall) in enumerate(MACHINES.items()):
        bus, topic = buses[machine], f"plant/{hall}/{machine}"
        phase = at / 6 + number
        heat = 60 + 40 * number + 8 * math.sin(phase) + random.random()
        bus.publish(f"{topic}/temperature", round(heat, 2))
        axes = [round(90 * math.sin(phase), 1), round(45 * math.cos(1.7 * phase), 1)]
        state = {"load": round(55 + 20 * math.sin(phase / 3)), "axes": axes, "running": True}
        bus.publish(f"{topic}/state", {**state, "job": {"id": 4711 + number, "left": 12}})
        if random.random() < 0.02:
            bus.publish(f"{topic}/alarm", {"level": "warning", "text": "coolant is low"})
        bus.publish(f"debug/{machine}", {"at": at})  # wanted by nobody
    buses["press-1"].publish("plant/energy", {"kW": round(412 + 30 * math.sin(at / 9), 1)})


def _take(page: Page, path: Path) -> int:
    session = page.context.new_cdp_session(page)
    options = {"format": "webp", "quality": 82}
    shot = base64.b64decode(session.send("Page.captureScreenshot", options)["data"])
    path.write_bytes(shot)
    return len(shot)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
