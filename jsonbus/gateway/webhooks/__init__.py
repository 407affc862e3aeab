"""Webhooks: subscribers that get their messages by POST, durably.

What it promises
----------------
When `WebhookLedger.accept` returns, the message is on disk for every webhook that wants it. It is
posted until the webhook answers 200, in order, in batches with an id that stays the same at every
attempt and after every restart. A process that is killed at any moment loses nothing of this. A
webhook that hangs or is gone holds up no other, and backlogs, bodies and connections are bounded.

    accept          ledger: who wants it, is there room?        event loop
      |             commits -> store -> database                commit thread, one fsync per group
    commit          the store also cuts the next batch
      |             ledger -> Webhooks.begin                    event loop
    deliver         delivery -> targets, bodies, post, backoff
      |
    settle          ledger -> commits -> store: the batch is deleted, the next one is cut

Files, in the order in which data meets them
--------------------------------------------
- webhooks.py: ties hub, ledger and deliveries together; subscribes and unsubscribes.
- ledger.py: the store as the event loop sees it: who wants what, limits, accept and settle.
- accounts.py: what is known of each subscriber in memory: counts, limits, the last error.
- commands.py: what the ledger asks of the store, and the answers; plain data.
- commits.py: the thread that commits commands in groups.
- store.py: subscribers, messages and batches in SQLite; one transaction per group.
- database.py: the connection: many rows per statement, undo log, reserve on the disk.
- schema.py: the file, its lock, its settings and its schema steps.
- delivery.py: delivers the batches of one subscriber, one after the other, until each is taken.
- bodies.py: the bodies of batches in memory, bounded for all deliveries.
- targets.py: the addresses to which webhooks may be sent; looks up names.
- post.py: one POST over a connection that is kept.
- backoff.py: the pause before the next attempt.

Neighbours
----------
../hub.py calls the ledger before it publishes, and hands over the messages of other nodes; http/
subscribes webhooks; metrics/ and dashboard/ read `SubscriberView`.
"""
