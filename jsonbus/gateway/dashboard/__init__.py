"""The dashboard: a live page of the bus at `/` of the gateway. NiceGUI is imported only here.

What it promises
----------------
A page costs what it shows, whatever the traffic: the bus is observed a few times a second, once for
all pages, while at least one is visible, and a browser gets only what changed and is in sight. With
tokens, nothing is served without a session. Text from the bus never runs as script. Nothing here is
imported before a gateway starts with a dashboard, since NiceGUI takes half a second.

Files, in the order in which data meets them
--------------------------------------------
- auth.py: decides which requests reach NiceGUI, and what a browser may do with its pages.
- sessions.py: the browsers that have shown a token.
- login_page.py: the form that asks for a token.
- engine.py: NiceGUI, which exists once in a process, started and ended with each gateway.
- dashboard.py: opens and closes it; takes a snapshot of the bus for all pages.
- snapshot.py: what all pages show at one moment.
- history.py: rates and numbers over the last minutes.
- page.py: one open page: its header and its tabs.
- overview.py, topics.py, topic_detail.py, nodes.py, webhooks.py, publish.py: the tabs.
- topic_tree.py: topics as a tree; fields.py: the numbers in a value.
- texts.py: figures and values as people read them.
- charts.py: a live chart.
- elements.py: our own elements; their JavaScript is in assets/.

Neighbours
----------
../gateway.py opens it; http/ routes `/`, `/login` and `/logout` to auth.py. It reads metrics/
(SurveyObserver, Bridges) and the webhooks' ledger, and publishes through ../hub.py.
"""
