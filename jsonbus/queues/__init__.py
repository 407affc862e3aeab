"""TopicQueue and AsyncTopicQueue: one bounded queue that many subscribers read.

Every subscriber gets every message put after it subscribed, in the same order and at its own pace.
The slowest subscriber holds up the writers. These queues are for programs; the bus itself does not
use them.

The files, in the order in which a message meets them:

- `threads.py`: `TopicQueue`: `put` and `get` that block a thread.
- `tasks.py`: `AsyncTopicQueue`: `put` and `get` that are awaited.
- `base.py`: the methods of both that never wait.
- `state.py`: the messages, and each subscriber's position. No lock, no waiting.

Called by applications, through `jsonbus.TopicQueue` and `jsonbus.AsyncTopicQueue`. Calls nothing of
the bus but its errors.
"""
