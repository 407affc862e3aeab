"""Draws everything that a seed and a mode decide about a random history before it begins.

There are three families of histories, each with its own dice: "small" ones of a dozen nodes;
"large" ones of 50 to 200 nodes in groups, each behind a switch; and "long" ones of a few nodes,
which restart every few seconds for an hour.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from jsonbus.core.limits import WHOLE_LIST_NODES
from jsonbus.sim.network import NetworkOptions

MODES = ("basic", "master", "delayed", "mixed")
FAMILIES = ("small", "large", "long")

# Lists of more nodes are compared in buckets and repaired in part. Such groups take as long to
# simulate as fifty small ones, so they are rare and their chaos is short.
LARGE_GROUP = WHOLE_LIST_NODES + 6
LARGE_SHARE = 0.03

LONG_S = 3600.0

# Of a sealed bus: longer than datagrams are fresh, and than places of senders are kept.
SEALED_S = (20.0, 240.0)
SEALED_NODES_MAX = 12


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that was drawn for one history."""

    seed: int
    mode: str
    nodes: int
    chaos_s: float
    pause_s: float  # mean time between two actions
    plain_peers: int
    options: NetworkOptions
    command: str  # the command that shows this history again, step by step
    has_channels: bool = False
    family: str = "small"
    is_sealed: bool = False

    @property
    def world_seed(self) -> str:
        return _world_seed(self.seed, self.mode, self.family)

    @property
    def is_patient(self) -> bool:
        """True if an attacker delays what others did not get, for as long as it is fresh."""
        return self.is_sealed and self.seed % 4 == 3

    @property
    def is_calm(self) -> bool:
        """True if every datagram arrives soon; links may still be cut."""
        return self.options.is_calm

    @property
    def is_harmless(self) -> bool:
        """True if the network is calm and no links are cut: plain peers, who say things once,
        are heard.
        """
        return self.is_calm and self.plain_peers > 0


def draw_plan(
    seed: int,
    mode: str,
    nodes: int | None = None,
    loss: float | None = None,
    *,
    has_channels: bool = False,
    family: str = "small",
    is_sealed: bool = False,
) -> Plan:
    """Draw everything that is not given."""
    assert mode in MODES and family in FAMILIES
    purpose = _world_seed(seed, mode, family)
    dice = random.Random(f"{purpose}/plan")
    weather = dice.choice(("calm", "lossy", "disorderly", "foul"))
    is_lossy, is_disorderly = weather in ("lossy", "foul"), weather in ("disorderly", "foul")
    drawn_loss = dice.choice((0.01, 0.05, 0.1, 0.2)) if is_lossy else 0.0
    is_large = dice.random() < LARGE_SHARE
    command = f"python3 tools/simulate.py --seeds 1 --seed {seed} --mode {mode}"
    command += _shown_options(nodes, loss, has_channels, family, is_sealed)
    options = NetworkOptions(
        loss=drawn_loss if loss is None else loss,
        repeat=dice.uniform(0, 0.3) if is_disorderly else 0.0,
        late=dice.uniform(0, 0.2) if is_disorderly else 0.0,
        keeps_order=weather == "calm" and dice.random() < 0.5,
        loops_back=dice.random() < 0.2,
        # Separate dice: they disturb none of the others.
        is_attacked=is_sealed,
        bursts=random.Random(f"{purpose}/bursts").choice((0.0, 0.01, 0.05)) if is_lossy else 0,
    )
    # Of the family "small", the order of these draws must stay: its seeds are known.
    pauses_s: tuple[float, ...]
    plain_peers: tuple[int, ...]
    if family == "large":
        nodes = nodes or dice.choice((50, 50, 50, 60, 60, 80, 80, 120, 200))
        chaos_s, pauses_s, plain_peers = dice.uniform(8, 14), (0.1, 0.2, 0.4), (0,)
    elif family == "long":
        nodes = nodes or dice.choice((4, 5, 6, 8, 10))
        chaos_s, pauses_s, plain_peers = LONG_S, (1.0, 1.5, 2.0), (0, 0, 0, 1)
    else:
        nodes = nodes or (LARGE_GROUP if is_large else dice.choice((3, 4, 5, 6, 8, 12)))
        chaos_s = dice.uniform(4, 8) if is_large else dice.uniform(8, 25)
        pauses_s, plain_peers = (0.05, 0.1, 0.3), (0, 0, 0, 1, 2)
    if is_sealed:
        nodes = min(nodes, SEALED_NODES_MAX)
        sealed_dice = random.Random(f"{purpose}/sealed")
        chaos_s, pauses_s = sealed_dice.uniform(*SEALED_S), (0.2, 0.4, 1.0)
        plain_peers = (0,)  # they have no key
    return Plan(
        seed=seed,
        mode=mode,
        nodes=nodes,
        chaos_s=chaos_s,
        pause_s=dice.choice(pauses_s),
        plain_peers=dice.choice(plain_peers),
        options=options,
        command=f"{command} --trace",
        has_channels=has_channels,
        family=family,
        is_sealed=is_sealed,
    )


def draw_sealed_clock(plan: Plan, number: int) -> float:
    """Draw how wrong the clock of the node with that number is: mostly little."""
    dice = random.Random(f"{plan.world_seed}/clock {number}")
    if plan.seed % 2 == 0 or dice.random() < 0.7:
        return dice.uniform(-2, 2)
    if dice.random() < 0.4:
        return dice.uniform(-25, 25)
    # So far behind that it does not change its key meanwhile, for which it would be challenged.
    return dice.choice((dice.uniform(90, 600), dice.uniform(90, 1e6), dice.uniform(-1e6, -1e3)))


def draw_settings(plan: Plan, number: int, dice: random.Random) -> dict[str, Any]:
    """Draw the settings of the node with that number, besides its names."""
    mode = plan.mode
    if mode == "mixed":
        mode = dice.choice(("basic", "master", "delayed", "delayed"))
    settings: dict[str, Any] = {"mode": mode, "batching": dice.random() < 0.8}
    if mode == "master":
        settings["is_master"] = number == 0 or dice.random() < 0.15
    elif mode == "delayed" and plan.seed % 3 == 0:
        settings["share_delay_s"] = dice.choice((0.0, 0.01, 0.05, 0.2))
    if dice.random() < 0.2:
        settings["datagram_bytes_max"] = 1200  # the least that may be configured
    if plan.family == "long":
        settings["receive_buffer_bytes"] = 1 << 20  # for the tables in which others note it
    return settings


def _shown_options(
    nodes: int | None, loss: float | None, has_channels: bool, family: str, is_sealed: bool
) -> str:
    """Return the options of the command, after seed and mode, that were given."""
    shown = "" if family == "small" else f" --family {family}"
    shown += "" if nodes is None else f" --nodes {nodes}"
    shown += "" if loss is None else f" --loss {loss}"
    shown += " --channels" if has_channels else ""
    return shown + (" --sealed" if is_sealed else "")


def _world_seed(seed: int, mode: str, family: str) -> str:
    return f"{seed}/{mode}" if family == "small" else f"{seed}/{mode}/{family}"
