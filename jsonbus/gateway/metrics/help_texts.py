"""Help texts of the figures of the gateway's parts, as Prometheus shows them.

By part and name, as in `Gateway.stats()`. A figure without a text is described by its name.
"""

from __future__ import annotations

from collections.abc import Iterator


def help_text(part: str, name: str) -> str:
    """Return one sentence, without a full stop."""
    owner = "the gateway's node on the bus" if part == "bus" else f"the gateway's {part}"
    return TEXTS.get((part, name)) or f"{name.replace('_', ' ')} of {owner}"


def _read(table: str) -> Iterator[tuple[tuple[str, str], str]]:
    part = ""
    for line in table.strip().splitlines():
        name, _, text = line.strip().partition("  ")
        if text:
            yield (part, name), text.strip()
        elif name:
            part = name


TEXTS = dict(
    _read("""
hub
    messages_published  messages that clients published through the gateway
    messages_received  messages of the bus that some client or webhook wants
    messages_dropped  messages of the bus that came faster than they could be passed on
    patterns_wanted  patterns that clients and webhooks want

webhooks
    batches_delivered  requests that webhooks answered by 200
    messages_delivered  messages in them
    attempts  requests to webhooks
    attempts_failed  requests that were not answered by 200; they are sent again
    connections_opened  connections opened to webhooks
    connections_kept  connections to webhooks that are open
    delivering  webhooks that something is being delivered to, or tried again
    messages_unwritable  messages of the bus that could not be written as JSON for webhooks
    messages_storing  messages of the bus on their way to the disk
    bodies_bytes  bytes of requests to webhooks that are in memory
    bodies_loaded  requests to webhooks that had to be read from the disk

store
    subscribers  webhooks
    subscriptions  topics and patterns of all webhooks
    backlog  messages that wait for webhooks, each counted for every webhook that wants it
    refused  messages that were refused, as a backlog or the disk was full
    dropped  messages of the bus that had no room in a webhook's backlog, or no disk
    is_failing  1 while messages for webhooks cannot be stored
    accepted  messages stored, each counted for every webhook that wants it
    delivered  messages that webhooks took, and that were removed from the store
    commits  transactions of the store
    commits_failed  transactions of the store that the disk did not take

events
    streams  event streams that are open
    streams_opened  event streams opened
    streams_cut  event streams cut off, as their client did not read
    streams_cut_for_all  event streams cut off, as all together had too much waiting
    events_sent  events sent
    events_unwritable  messages that could not be written as JSON for event streams
    events_waiting  events that clients have not read yet
    backlog_bytes  bytes of events that clients have not read yet

text
    clients  text clients that are connected
    clients_accepted  text clients that came
    clients_refused  text clients turned away, as there were too many
    clients_dropped  text clients cut off, as they did not read
    clients_dropped_for_all  text clients cut off, as all together had too much waiting
    patterns  subscriptions of text clients
    commands  commands executed
    commands_failed  commands answered by an error
    commands_waiting  commands that wait for a handler
    deliveries  lines given to text clients
    messages_unwritable  messages that could not be written as a line
    lines_waiting  lines that text clients have not read yet
    backlog_bytes  bytes of lines that text clients have not read yet

http
    connections_open  HTTP connections that are open
    requests  HTTP requests

sockets
    accept_pauses  times that no connection could be accepted: too many files open, most likely

lookout
    lookers  who looks at the bus through the gateway: pages of the dashboard, and a scraper
    messages_dropped  messages that came faster than they could be counted by topic

bridges
    known  Spark bridges that are remembered, those that just left included
    left_out  Spark bridges on the bus that are not asked, there being too many
    answers_refused  answers of Spark bridges that were no such answers
    questions_unanswered  questions that a Spark bridge did not answer in time, or refused

dashboard
    pages  pages of the dashboard that are open
    messages_malformed  messages of browsers that were not understood
    pages_seen  pages of the dashboard that are kept up to date
    sessions  browsers that are logged in to the dashboard

bus
    messages_published  messages published by this node
    messages_sent  messages sent
    messages_suppressed  messages not sent, as nobody wanted them
    messages_local  messages that only this node's own subscriptions wanted
    messages_held  messages that waited until the node was sure who is there
    held_sent  of these, sent in the end
    held_suppressed  of these, wanted by nobody in the end
    messages_waiting_to_be_sure  messages that wait until the node is sure who is there
    messages_received  messages received from others
    messages_delivered  messages received that some subscription of this node wanted
    messages_unwanted  messages received that none wanted
    messages_lost  messages of others that never came; one that comes late is taken back
    messages_malformed  items of batches that were no messages
    messages_incomplete  large messages of which a part never came
    messages_dropped  messages that came faster than this node's subscriptions took them
    messages_repaired  messages sent again for nodes that had missed them
    messages_given_up  messages of reliable topics that could not be had again
    messages_kept_for_repair  messages kept, to be sent again to who missed them
    messages_waiting_for_repair  messages that wait until an earlier one was sent again
    repairs_unavailable  messages of this node that were asked for again too late
    naks_sent  times that this node asked for messages again
    naks_received  times that a node asked for messages again, whosever they were
    reliable_waits  times that a publisher of reliable messages waited for subscribers to catch up
    values_retained  values that this node retains
    values_given  retained values given to newcomers
    datagrams_sent  datagrams sent
    datagrams_unsent  datagrams that could not be sent: the network is down, most likely
    datagrams_received  datagrams received
    bytes_received  bytes of the datagrams received
    datagrams_plain  datagrams received of programs that are no nodes
    datagrams_repeated  datagrams that came twice
    datagrams_outdated  datagrams of a node that has since started anew
    datagrams_rejected  datagrams that were no such thing
    fragments_received  parts of large messages received
    kernel_drops  datagrams that the kernel dropped: they came faster than they were read
    receive_buffer_asked_bytes  the receive buffer asked of the system
    receive_buffer_obtained_bytes  the receive buffer that the system granted
    send_failures  times that an interface refused a datagram, others that took it or not
    pacing_waits  times that sending waited, for the rate limit or for readers on this machine
    pacing_given_up  times that a program on this machine that does not read was not waited for
    nodes_known  nodes known to be on the bus
    announcements_sent  changes of this node's own subscriptions, told to all
    presences_sent  signs of life sent
    list_shares_sent  full subscription lists sent for late joiners
    list_repairs_sent  parts of the subscription list sent, as they differed somewhere
    suspicions_sent  questions whether a silent node is still there
    plain_peers_refused  plain programs that were not listed, there being too many
    requests_sent  requests sent
    requests_repeated  requests sent again, as no reply came
    requests_served  requests answered
    requests_refused  requests refused, there being too many
    replies_too_late  replies that came when nobody waited any more
    events_dropped  events of the node that were not told in time
    node_events_dropped  nodes that came or went, of which handlers were not told in time
    gap_events_dropped  gaps of which handlers were not told in time
    channels_open  channels that are open
    channels_opened  channels opened
    channels_lost  channels that neither side closed on purpose
    channels_refused  channels that others wanted and this node refused
    channel_attempts_failed  attempts of this node to open a channel that failed
    channel_connections_dropped  connections at the channels' port that were no callers, or too many
    channel_messages_sent  messages sent over channels
    channel_messages_received  messages received over channels
    channel_bytes_sent  bytes sent over channels
    channel_bytes_received  bytes received over channels
    channel_messages_too_large  messages of channels that were larger than allowed
    channel_messages_discarded  messages of channels received, and taken by nobody
    channel_messages_unsent  messages of channels that were not sent before these ended
""")
)
