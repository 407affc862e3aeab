"""Imports point one way, and importing the package stays cheap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import jsonbus
from tests.helpers import find_free_port
from tools._import_rules import broken_rules, judge

ROOT = Path(__file__).parents[2]

#: What a program that opens a bus with threads need not wait for, unless it uses it.
NOT_FOR_OPENING = """
    asyncio click concurrent.futures email hashlib http importlib.metadata ipaddress rich ssl
    subprocess tempfile urllib
    jsonbus.aio jsonbus.cli jsonbus.core.values.typed msgspec
    jsonbus.core.views jsonbus.doctor
    jsonbus.sim jsonbus.queues.threads
    jsonbus.queues.tasks jsonbus.queues.state jsonbus.queues.base jsonbus.subscription_store
    jsonbus.transport.memory jsonbus.core.channel.end jsonbus.core.channel.budget
    jsonbus.core.channel.limits jsonbus.core.channel.ports jsonbus.core.channel.wire
    jsonbus.core.channel.connecting jsonbus.frontend.channels.binding
    jsonbus.frontend.channels.connector jsonbus.frontend.channels.channel
    jsonbus.frontend.channels.manager jsonbus.frontend.channels.connection jsonbus.sync.channel
    jsonbus.sync.channels jsonbus.sync.channel_io jsonbus.transport.tcp
"""


@pytest.mark.slow
def test_every_import_of_the_project_points_the_right_way() -> None:
    assert broken_rules(ROOT) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("jsonbus.core.node", "import socket"),
        ("jsonbus.core.node", "import asyncio.events"),
        ("jsonbus.core.node", "from time import monotonic"),
        ("jsonbus.core.node", "import random\nrandom.random()"),
        ("jsonbus.core.node", "from random import random"),
        ("jsonbus.core.values.typed", "from datetime import datetime\ndatetime.now()"),
        ("jsonbus.core.node", "import orjson"),
        ("jsonbus.core.node", "from ..transport import multicast"),
        ("jsonbus.core.node", "from jsonbus.config import BusConfig"),
        ("jsonbus.core.node", "import jsonbus"),
        ("jsonbus.core.node", "def f():\n    import threading"),
        ("jsonbus.core.wire.decode", "from ..membership.joining import Joining"),
        ("jsonbus.core.membership.joining", "from ..reliable.history import History"),
        ("jsonbus.core.wire.decode", "from jsonbus.core.routing.matching import matches"),
        ("jsonbus.core.wire.decode", "from jsonbus.core.limits import ROUTES_MAX"),
        ("jsonbus.core.values.retained", "from ..reliable.history import History"),
        ("jsonbus.core.rpc.requests", "from jsonbus.core.publisher import Publisher"),
        ("jsonbus.core.channel.ports", "from jsonbus.core.receiver import Receiver"),
        ("jsonbus.core.reliable.history", "from ..node import Node"),
        ("jsonbus.transport.multicast", "import netifaces"),
        ("jsonbus.transport.multicast", "from ..core.frames import Header"),
        ("jsonbus.config", "from .core import limits"),
        ("jsonbus.sync.loop", "from ..aio.loop import Loop"),
        ("jsonbus.aio.loop", "from jsonbus.sync import loop"),
        ("jsonbus.frontend", "from .sync.bus import Bus"),
        ("jsonbus.sim.world", "from ..transport.memory import MemoryNetwork"),
        ("jsonbus.cli.commands.pub", "from jsonbus.core.message import Message"),
        ("jsonbus.cli.commands.pub", "from jsonbus import core"),
        ("jsonbus.cli.commands.pub", "from jsonbus.doctor import examine"),
        ("jsonbus.cli.commands.doctor", "from jsonbus.transport import open_multicast"),
        ("jsonbus.sync.bus", "from jsonbus.doctor import examine"),
        ("jsonbus.cli.commands.pub", "import fastapi"),
        ("jsonbus.newcomer", "from .errors import JsonBusError"),
        ("tools.demo", "import jsonbus.sim"),
        ("tools.test", "import click"),
    ],
)
def test_an_import_that_points_the_wrong_way_is_found(module: str, source: str) -> None:
    assert len(judge(module, source, known=frozenset({"jsonbus.core"}))) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("jsonbus.core.wire.codec", "import orjson"),
        ("jsonbus.core.reliable.reliable", "from jsonbus.core.values.fragments import Fragments"),
        ("jsonbus.core.node", "import random\ndice: random.Random"),
        ("jsonbus.core.node", "from random import Random"),
        ("jsonbus.core.node", "from .frames import Header\nfrom ..errors import ClosedError"),
        ("jsonbus.core.values.typed", "from datetime import datetime\ndatetime.fromisoformat('')"),
        ("jsonbus.transport.interfaces", "import netifaces\nimport socket"),
        ("jsonbus.sync.loop", "from ..transport import base\nfrom ..core.node import Node"),
        (
            "jsonbus.cli.commands.pub",
            "import click\nfrom jsonbus import Bus\nimport jsonbus.errors",
        ),
        (
            "jsonbus.cli.commands.doctor",
            "from jsonbus.doctor import examine\nfrom . import signals",
        ),
        ("jsonbus.doctor.machine", "from ..transport.interfaces import list_candidates"),
        ("tools.simulate", "from jsonbus.sim.world import World"),
        ("tools.bench.bus.command", "import jsonbus\nfrom jsonbus.transport import multicast"),
        ("tools.bench.bus.peers", "import zmq"),
        ("tools.test", "from _setup import set_up"),
    ],
)
def test_an_import_that_points_the_right_way_passes(module: str, source: str) -> None:
    assert judge(module, source, known=frozenset({"tools._setup"})) == []


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, jsonbus; "
        "heavy = 'asyncio click rich orjson msgspec netifaces socket pyspark fastapi nicegui"
        " starlette uvicorn httpx httpcore prometheus_client jsonbus.gateway'; "
        "print(*(each for each in heavy.split() if each in sys.modules))"
    )
    assert _output_of(code) == ""


def test_the_bus_with_threads_does_not_import_asyncio() -> None:
    assert (
        _output_of("import sys, jsonbus; jsonbus.Bus; print('asyncio' in sys.modules)") == "False"
    )


def test_opening_a_bus_imports_only_what_it_needs() -> None:
    settings = f"port={find_free_port()}, interface='lo'"
    code = (
        f"import sys; before = set(sys.modules); import jsonbus; jsonbus.Bus({settings}).close(); "
        f"print(*(each for each in {NOT_FOR_OPENING.split()} if each in set(sys.modules) - before))"
    )
    assert _output_of(code) == ""


def test_what_opening_left_out_comes_with_its_first_use() -> None:
    code = (
        "import jsonbus; from jsonbus.transport import MemoryNetwork; "
        "bus = jsonbus.Bus.over(MemoryNetwork().open(), name='desk'); "
        "bus.subscribe('a', as_type=int); "
        "print(bus.nodes()[0].name, *bus.subscriptions(), bus.explain('a').local); "
        "bus.close()"
    )
    assert _output_of(code) == "desk a 1"


def test_every_public_name_can_be_imported() -> None:
    for name in jsonbus.__all__:
        assert getattr(jsonbus, name) is not None
    assert set(jsonbus.__all__) <= set(dir(jsonbus))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Broker'"):
        _ = jsonbus.Broker


def _output_of(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()
