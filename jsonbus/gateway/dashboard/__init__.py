"""The dashboard: a live page of the bus at `/` of the gateway. The only home of NiceGUI.

dashboard.py .... opens and closes it; looks at the bus a few times a second for all pages
engine.py ....... NiceGUI, which lives once in a process, and ends with each gateway nonetheless
auth.py ......... what reaches NiceGUI, and what a browser may do with its pages
sessions.py ..... who has shown a token; login_page.py asks for one
page.py ......... one open page: its header, its tabs, what of it is visible
overview.py topics.py topic_detail.py nodes.py webhooks.py publish.py ... the tabs
topic_tree.py fields.py texts.py history.py ... what they show, without NiceGUI
elements.py ..... our own elements, whose other halves are in assets/

Nothing here is imported before a gateway starts with a dashboard: NiceGUI takes its time.
"""
