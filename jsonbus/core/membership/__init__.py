"""Membership: which nodes are on the bus, and what they subscribe to.

Every node keeps the subscription list of the whole bus, and nodes keep their lists equal without a
server: an entry per node with a version that only its owner raises, digests in every presence to
notice differences, and shares of the list for nodes that lack something. A node that is sure of its
list sends only what is wanted; one that is not sure sends everything.

The files, in the order in which a datagram meets them:

- `membership.py`: merges what comes in, drives the timers, reports nodes that join and leave;
- `plain.py`: lists of nodes that only know topic and payload;
- `subscription_list.py`: the entries, their digest and bucket sums, and the rules of merging;
- `agreement.py`: compares digests, and decides which differences are real;
- `joining.py`: the states joining, sure and doubting;
- `sharing.py`: the debts to nodes that lack something, and the lists that pay them;
- `list_sender.py`: cuts a list into datagrams and sends them in bursts;
- `strategies.py`: which node pays, and when: basic, master, delayed;
- `announced.py`: the patterns of the own entry, coarser ones if there are too many;
- `naming.py`: names new subscriptions that a coarse entry covers;
- `announcer.py`: what this node sends about itself: announcements, presence, goodbye;
- `liveness.py`: heartbeats, suspicion and expiry of silent nodes;
- `directory.py`: addresses of nodes for channels, and the sizes of their receive buffers.

Neighbours: `Node` and its receiver call `Membership` and `Directory`; entries that change go to
the router, which matches topics. Datagrams leave through the outbox.
"""
