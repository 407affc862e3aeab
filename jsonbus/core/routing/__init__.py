"""Routing: matching patterns, and the inboxes and nodes that want a message.

Publishing and receiving look a topic up once, and use the result until a subscription changes
anywhere. The files, in the order in which a topic meets them:

- `router.py`: the route of a topic: local inboxes, and whether another node wants it;
- `matching.py`: whether a pattern matches a topic;
- `subscriptions.py`: the patterns of local subscribers, and those of other nodes, counted;
- `pattern_map.py`: values filed under patterns and found by topic, read without a lock.

Neighbours: publisher, fast receive, reliable topics, retained values and requests ask the router;
LocalSubscriptions and membership change what it knows.
"""
