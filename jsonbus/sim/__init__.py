"""jsonbus.sim: the production core in a simulated world, without real time and repeatable by seed.

    from jsonbus.sim import World

    world = World(seed=7)
    kitchen = world.add_node("kitchen", patterns=["sensors/**"])
    garage = world.add_node("garage")
    world.run_for(1.0)
    world.publish(garage, "sensors/door")

**World.** A clock of virtual time, a network made of dice, participants, and checkers. Participants
are production nodes (`jsonbus.core.node.Node`, each with a clock of its own) and plain peers, which
know only topic and payload. The loop carries datagrams and timers to them, as the front ends do. A
world does nothing by itself: a test or a history calls its methods (add_node, publish, crash,
freeze …) and lets time pass. The same seed gives the same run, to the last event, because each
purpose has dice of its own (`World.dice`): the network, the ids, every life of a node.

**History.** `History(draw_plan(seed, mode)).run()`: a plan is drawn from seed and mode, then a
random world lives through chaos, is healed, settles, and is probed (history.py says how). It
returns the world, or raises BrokenInvariantError, which names the promise, the time and the seed.
There are three families of them: small groups, large ones of which whole groups are cut off, and
an hour of restarts (plan.py). Small ones may have channels, or a sealed bus with an attacker.
`tools/simulate.py` runs histories and measurements from the command line.

**Checkers.** A checker guards one promise. The world calls its hooks with what happens (published,
sent, delivered, told …) and records the truth (subscriptions, publications, lives); the checker
compares the two and raises as soon as the promise is broken. A history checks all of these:

    checkers.py           single messages
      DatagramsAreSound     any JSON reader can read a datagram; none is too large
      DeliveriesAreTrue     what is delivered was published and is wanted; it comes once, in order
      PublishersKeepOrder   messages of a topic leave their publisher once, in order
      HoldIsBounded         a joining node holds a bounded number of messages
      NothingIsForgotten    no output and no timer of a node is missed
      RepliesAreTrue        a reply answers a request of this node
    list_checkers.py      every node's subscription list
      VersionsNeverGoBack   an entry is never replaced by an older one
      NothingIsWithheld     a sure node withholds nothing from a connected subscriber
      NothingIsWasted       nothing is sent that nobody has wanted for long
    group_checkers.py     the group as a whole
      JoinersAreServed      a joiner soon learns of everybody
      QuietGroupsAreQuiet   no full share once a healed group agrees (armed when it has settled)
      NobodyStorms          no flood of lists after the faults (armed when it is healed)
      AllAgree              all lists are equal and true (judged when it has settled)
      ProbesArrive          every subscription gets every message (judged at the end)
    reliable_checkers.py  reliable and retained messages
      ReliableIsExact       once, in order, and complete but for reported gaps (judged at the end)
      BuffersAreBounded     history, streams, slices and held messages stay within their bounds
      RetainedIsGivenOnce   a late subscriber gets each retained value once (judged at the end)
    growth_checkers.py    what nodes and subscriptions that are gone leave behind
      TablesStayBounded     no table of a node grows with all nodes that were ever here
      VersionsAreEarned     versions and incarnations grow only with changes and restarts
    channels/checkers.py  channels, in histories that have some
      MessagesAreInOrder    what is taken is what was sent, in order
      ClosesAreTrue         who is told that all has arrived, or of a close, is told the truth
      BoundsAreKept         ends and nodes hold no more than their bounds
      ExclusivePortsHaveOneChannel  never two at once
      SilenceIsTrue         nobody is taken for silent who is up and can be heard
      LossesAreNoticed      who is gone or cut off is noticed
      NothingIsLeft         nothing is left of closed channels (judged at the end)
      AttemptsEndInTime     an attempt to open a channel ends by its deadline
      RefusalsAreTrue       what an attempt is told is true
      EverythingArrives     what was sent is taken after the faults (armed when it is healed)
    sealed/checkers.py    sealed datagrams, in histories that have an attacker
      OnlyTheFreshIsLetIn   what is let in was sealed by a node, lately, and comes once
      NobodyIsKeptOut       nodes of one key hear each other whatever an attacker does
      NoncesComeOnce        no key and nonce are used twice
      OutsidersHearNothing  another key opens nothing, and nothing is in clear
      OpenersStayBounded    no table of an opener grows with what an attacker sends

The files:

world.py         what can happen to participants, and the record of it
participants.py  production nodes, and plain peers
clock.py         virtual time, and the events that wait for it
network.py       multicast with loss, delay, repeats, reordering and cut links
loop.py          hands datagrams and timers to the participants
records.py       the truth: subscriptions, publications, lives
checkers.py      base class of checkers and its hooks; promises of single messages
list_checkers.py, reliable_checkers.py, group_checkers.py, growth_checkers.py  further promises
plan.py          draws what a seed decides before a history begins
promises.py      all promises of a history, and what its phases tell them
chaos.py         what happens in a random history, for each family
history.py       a random history, from chaos to the last probe
script.py        what a history does, as data: recorded, and done again
shrink.py        cuts a broken history down to a short scenario
experiments.py   measurements: late joins, mass starts
report.py        traces, tallies and tables for people
channels/        channels between simulated nodes
sealed/          sealed datagrams, and an attacker

It imports only the core; sealed/ also the sealers and openers of jsonbus/sealed.
"""

from __future__ import annotations

from jsonbus.sim.checkers import BrokenInvariantError, Checker
from jsonbus.sim.network import NetworkOptions
from jsonbus.sim.world import World

__all__ = ["BrokenInvariantError", "Checker", "NetworkOptions", "World"]
