"""Help texts of the figures of the gateway's parts, as Prometheus shows them.

Keys are part and name, as in `Gateway.stats()`. A figure without a text is shown by its name.
"""

from __future__ import annotations

from collections.abc import Iterator


def help_text(part: str, name: str) -> str:
    """Return the help text of a figure: one sentence, without a full stop."""
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
    batches_delivered  requests that webhooks answered with 200
    messages_delivered  messages in requests that webhooks answered with 200
    attempts  requests to webhooks
    attempts_failed  requests to webhooks that were not answered with 200; they are repeated
    connections_opened  connections opened to webhooks
    connections_kept  connections to webhooks that are open
    delivering  webhooks with a delivery in progress or waiting to be repeated
    messages_unwritable  messages of the bus that could not be written as JSON for webhooks
    messages_storing  messages of the bus that are being written to the disk
    bodies_bytes  bytes of requests to webhooks that are in memory
    bodies_loaded  requests to webhooks that had to be read from the disk

store
    subscribers  webhooks
    subscriptions  topics and patterns of all webhooks
    backlog  messages that wait for webhooks, each counted for every webhook that wants it
    refused  messages refused because a backlog or the disk was full
    dropped  messages of the bus dropped because a webhook's backlog or the disk was full
    is_failing  1 while messages for webhooks cannot be stored
    accepted  messages stored, each counted for every webhook that wants it
    delivered  messages that webhooks accepted and the store removed
    commits  transactions of the store
    commits_failed  transactions of the store that failed

events
    streams  event streams that are open
    streams_opened  event streams opened
    streams_cut  event streams closed because their client did not read
    streams_cut_for_all  event streams closed because all together had too much unread output
    events_sent  events sent
    events_unwritable  messages that could not be written as JSON for event streams
    events_waiting  events that clients have not read yet
    backlog_bytes  bytes of events that clients have not read yet

text
    clients  text clients that are connected
    clients_accepted  text clients accepted
    clients_refused  text clients refused because there were too many
    clients_dropped  text clients disconnected because they did not read
    clients_dropped_for_all  text clients disconnected because all together had too much unread
    patterns  subscriptions of text clients
    commands  commands executed
    commands_failed  commands answered with an error
    commands_waiting  commands that wait for a handler
    deliveries  lines sent to text clients
    messages_unwritable  messages that could not be written as a line
    lines_waiting  lines that text clients have not read yet
    backlog_bytes  bytes of lines that text clients have not read yet

http
    connections_open  HTTP connections that are open
    requests  HTTP requests

sockets
    accept_pauses  times that no connection was accepted, usually because too many files are open

lookout
    lookers  users of the survey of the bus: pages of the dashboard, and a scraper
    messages_dropped  messages that came faster than they could be counted by topic

bridges
    known  Spark bridges that are remembered, including those that left recently
    left_out  Spark bridges on the bus that are not asked because there are too many
    answers_refused  answers of Spark bridges that were malformed
    questions_unanswered  questions that a Spark bridge did not answer in time, or refused

dashboard
    pages  pages of the dashboard that are open
    messages_malformed  messages of browsers that were not understood
    pages_seen  pages of the dashboard that are kept up to date
    sessions  browsers that are logged in to the dashboard

bus
    messages_published  messages published by this node
    messages_sent  messages sent
    messages_suppressed  messages not sent because nobody wanted them
    messages_local  messages that only subscriptions of this node wanted
    messages_held  messages that waited until the node was sure of the subscription list
    held_sent  messages that waited and were then sent
    held_suppressed  messages that waited and were not sent because nobody wanted them
    messages_waiting_to_be_sure  messages that wait until the node is sure of the subscription list
    messages_received  messages received from other nodes
    messages_delivered  messages received that some subscription of this node wanted
    messages_unwanted  messages received that no subscription of this node wanted
    messages_lost  messages of other nodes that never came; one that comes late is subtracted
    messages_malformed  items of batches that were not messages
    messages_incomplete  large messages of which a part never came
    messages_dropped  messages that came faster than this node's subscriptions took them
    messages_unread  messages that were not read when their subscription was closed
    messages_repaired  messages sent again for nodes that had missed them
    messages_given_up  messages of reliable topics that could not be repaired
    messages_kept_for_repair  messages kept to be sent again to nodes that missed them
    messages_waiting_for_repair  messages that wait until an earlier one is repaired
    repairs_unavailable  messages of this node that another node asked for too late
    naks_sent  times that this node asked for messages again
    naks_received  times that a node asked for messages of any node again
    reliable_waits  times that a publisher of reliable messages waited for subscribers to catch up
    values_retained  values that this node retains
    values_given  retained values sent to late subscribers
    datagrams_sent  datagrams sent
    datagrams_unsent  datagrams that could not be sent, usually because the network is down
    datagrams_received  datagrams received
    bytes_received  bytes of the datagrams received
    datagrams_plain  datagrams received from programs that are not nodes
    datagrams_repeated  datagrams that came twice
    datagrams_outdated  datagrams of a node from before its restart
    datagrams_rejected  datagrams that were malformed
    datagrams_open  datagrams that were not sealed, on a sealed bus
    datagrams_foreign  sealed datagrams of other keys than this bus has
    datagrams_forged  sealed datagrams that were changed, or made by somebody without the key
    datagrams_replayed  sealed datagrams that came before, such as by another interface
    datagrams_stale  sealed datagrams of another time: a recording, or a clock that is wrong
    datagrams_unproven  sealed datagrams not looked at because too many strangers sent some
    fragments_received  parts of large messages received
    kernel_drops  datagrams that the kernel dropped, as they came faster than they were read
    offload_refusals  times that an interface did not take several datagrams at once
    receive_buffer_asked_bytes  the receive buffer requested from the system
    receive_buffer_obtained_bytes  the receive buffer that the system granted
    interfaces_up  network interfaces by which this node is on the bus
    send_failures  times that an interface refused a datagram, even if another accepted it
    pacing_waits  times that sending waited, for the rate limit or for readers on this machine
    pacing_given_up  times that sending stopped waiting for a local program that does not read
    nodes_known  nodes known to be on the bus
    announcements_sent  announcements of changed subscriptions of this node
    presences_sent  signs of life sent
    list_shares_sent  full subscription lists sent for late joiners
    list_repairs_sent  parts of the subscription list sent because another node's list differed
    suspicions_sent  questions whether a silent node is still on the bus
    plain_peers_refused  plain programs not listed because there were too many
    requests_sent  requests sent
    requests_repeated  requests sent again because no reply came
    requests_served  requests whose handler ran
    requests_refused  requests refused because there were too many
    requests_expired  requests not run because nobody waited for the reply any longer
    requests_cancelled  requests not run because the asking node cancelled them
    replies_too_late  replies that came after the request had ended
    events_dropped  events of the node that were not taken in time
    node_events_dropped  node events dropped because handlers were too slow
    gap_events_dropped  gap events dropped because handlers were too slow
    channels_open  channels that are open
    channels_opened  channels opened
    channels_lost  channels that ended without being closed by either side
    channels_refused  channels from other nodes that this node refused
    channel_attempts_failed  attempts of this node to open a channel that failed
    channel_connections_dropped  connections to the channel port that were invalid or too many
    channel_messages_sent  messages sent over channels
    channel_messages_received  messages received over channels
    channel_bytes_sent  bytes sent over channels
    channel_bytes_received  bytes received over channels
    channel_messages_too_large  messages of channels that exceeded the size limit
    channel_messages_discarded  messages received over channels that the program never read
    channel_messages_unsent  messages of channels that were not sent before the channel ended
""")
)
