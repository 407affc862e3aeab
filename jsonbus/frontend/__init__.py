"""What both front ends share: everything about a bus that neither locks nor waits.

opening.py       a node and its transport, from the settings
checks.py        arguments of the public methods
events.py        what the core tells: logged, or handed to whoever waits for it
presence.py      handlers of nodes that join, leave or expire, as far as the same in both
mail.py          the part of a subscription that is the same with threads and tasks
lifetime.py      open buses when the process forks or ends
waits.py         handlers that would wait for themselves
"""
