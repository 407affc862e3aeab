"""/metrics, read as Prometheus reads it."""

from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

#: By name and labels, sorted.
Scraped = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read_text(text: str) -> Scraped:
    samples = [
        ((sample.name, tuple(sorted(sample.labels.items()))), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    scraped = dict(samples)
    assert len(scraped) == len(samples), "a sample comes twice"
    return scraped


async def read_metrics(http: httpx.AsyncClient) -> Scraped:
    answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return read_text(answer.text)
