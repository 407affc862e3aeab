"""Metrics: the figures of the gateway and of the whole bus, in Prometheus' format.

What it promises
----------------
Names of metrics stay. Counters never fall. The number of series is bounded, whatever happens on the
bus. A gateway that is not scraped pays nothing: a scrape starts to observe the bus, and observation
ends some minutes after the last scrape. Observing is passive: no node sends more for it.

Files, in the order in which data meets them
--------------------------------------------
- survey_observer.py: feeds one survey of the bus for all who observe it: scrapes and dashboards.
- bridges.py: asks the Spark bridges on the bus for their state, and checks the answers.
- series.py: counters of many things in a bounded number of series.
- families.py: nodes, topics, webhooks and bridges as families of samples.
- observer.py: what one scrape sees of the bus.
- help_texts.py: what the figures of the gateway's parts mean.
- metrics.py: writes everything in Prometheus' format.

Neighbours
----------
http/ serves `/metrics`; dashboard/ uses survey_observer.py and bridges.py. They read the bus by its
public names and by jsonbus.survey.
"""
