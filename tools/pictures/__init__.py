"""Pictures of the READMEs, and what makes them.

bench_chart.py   bench.png: `python3 -m tools.bench bus --chart tools/pictures/bench.png`
dashboard.py     dashboard.webp: `.venv/bin/python -m tools.pictures.dashboard`

grafana.json is a dashboard over the metrics of gateway and bridge, to import into Grafana.
"""
