"""Settings of a pipeline: what it reads, how it judges, where it writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """ValueError names the setting that cannot be.

    `output` and `checkpoint` are folders, by path or URL; a pipeline that is started again with the
    same ones goes on where it was.
    """

    output: str
    checkpoint: str
    bridge: str = "127.0.0.1:7710"
    token: str | None = None
    #: Speak TLS with the bridge; `tls_ca`: a file with the CA of its certificate.
    tls: bool = False
    tls_ca: str | None = None
    topics: str = "sensors/**"
    #: Where a new pipeline begins, as in the source's option startingOffsets.
    starting: str = "earliest"
    #: The group under which the bridge lists its queries.
    name: str = "pipeline"

    #: Members of a value that is an object: the number, and when it was taken.
    value_field: str = "value"
    time_field: str = "at"

    window_s: float = 10.0
    #: How long a reading may take to arrive and still count in its window.
    lateness_s: float = 10.0

    #: A reading beyond these is an anomaly, and is not used to judge others.
    low: float | None = None
    high: float | None = None
    #: So is one that is further from its sensor's recent mean than this many standard deviations,
    #: and than the tolerance: a value that never changed has no deviation at all.
    deviations: float = 6.0
    tolerance: float = 0.0
    #: The mean of fewer readings is not used.
    baseline_readings_min: int = 10

    windows_topic: str = "windows"
    alerts_topic: str = "alerts"

    trigger_s: float = 1.0
    #: The most that a batch takes: a pipeline that was away for a day catches up in steps.
    rows_per_batch_max: int = 500_000

    @property
    def bridge_options(self) -> dict[str, str]:
        """The options by which Spark finds the bridge."""
        token = {} if self.token is None else {"token": self.token}
        tls = {"tls": "true"} if self.tls else {}
        ca = {} if self.tls_ca is None else {"tlsCa": self.tls_ca}
        return {"bridge": self.bridge, **token, **tls, **ca}

    def __post_init__(self) -> None:
        for name in ("window_s", "lateness_s", "deviations", "rows_per_batch_max"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be more than 0")
        for name in ("tolerance", "trigger_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 0 or more")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low is {self.low}, which is not below high, {self.high}")
        if self.value_field == self.time_field:
            raise ValueError(f"value_field and time_field are both {self.value_field!r}")
