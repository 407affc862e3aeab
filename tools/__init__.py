"""Everything for people who work on jsonbus; README.md in this folder shows the commands.

Scripts that any Python runs from any folder; they make `.venv` when they need it:

demo.py        the demonstration
test.py        all checks and all tests; CI runs this
check.py       format, lint, types, imports, tree
simulate.py    many nodes under a virtual clock: measurements, and random histories, which
               simulate_histories.py runs side by side
hops.py        the way of a message through the code, traced
soak.py        a bus in the lab for a long time; soak_node.py is one node of it

Packages, run as modules from the project's folder:

bench/         `python3 -m tools.bench bus --quick`
lab/           `python3 -m tools.lab`: a network of hosts inside this machine
pictures/      the pictures of the READMEs, and a Grafana dashboard
examples/      sensors for other machines and languages, containers

Used by the scripts:

_setup.py          `.venv`, and what is installed into it
_interpreters.py   other versions of Python on this machine
_browser.py        Chromium, for the tests of the dashboard
_import_rules.py   which way imports point
_tree_rules.py     small folders and files, complete maps
"""
