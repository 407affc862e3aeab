"""How the stations of the pipeline are called: modules and their arguments."""

from __future__ import annotations

from pathlib import Path

from .loopback import LOOPBACK, TTL
from .pipeline_scene import TOPIC_PREFIX
from .sensor import SensorPart

#: Windows and lateness of the pipeline; short, so that there is something to see.
WINDOW_S = 5.0
LATENESS_S = 10.0
BASELINE_READINGS_MIN = 10
#: What a thermometer can show, and how far it is from its mean when all is well.
LOW, HIGH = -40.0, 85.0
TOLERANCE = 5.0

#: The path of a unix socket has 107 characters at most, and its name 42.
SOCKET_FOLDER_CHARACTERS_MAX = 60


def bridge_arguments(group: str, port: int, data: Path) -> list[str]:
    """A bridge that records the sensors and listens on any port of this machine."""
    return [
        f"{__package__}.leash",
        *("bridge", f"{TOPIC_PREFIX}**", "--listen", f"{LOOPBACK}:0"),
        *("--data-dir", str(data / "log"), "--partitions", "2"),
        *("--group", group, "--port", str(port)),
        *("--interface", LOOPBACK, "--ttl", str(TTL), "--name", "bridge"),
    ]


def sensor_arguments(group: str, port: int, name: str, value: float, per_s: float) -> list[str]:
    """A sensor."""
    part = SensorPart(
        name=name,
        group=group,
        port=port,
        topic=TOPIC_PREFIX + name,
        value=value,
        per_s=per_s,
        window_s=WINDOW_S,
        lateness_s=LATENESS_S,
        baseline_readings_min=BASELINE_READINGS_MIN,
    )
    return [f"{__package__}.sensor", part.to_line()]


def spark_arguments(bridge: str, data: Path, temporary: Path) -> list[str]:
    """The streaming job; what it writes besides the data goes into `temporary`."""
    # A short life: the compiler that is quick to start, and nothing left behind.
    java = f'-Djava.io.tmpdir="{temporary}" -XX:TieredStopAtLevel=1 -XX:-UsePerfData'
    conf = {
        "spark.driver.extraJavaOptions": java,
        "spark.driver.memory": "1g",
        "spark.local.dir": str(temporary),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(temporary / "warehouse"),
    }
    if len(str(temporary)) > SOCKET_FOLDER_CHARACTERS_MAX:
        conf["spark.python.unix.domain.socket.enabled"] = "false"
    return [
        *("spark_bridge.pipeline", "--attached", "--bridge", bridge),
        *("--topics", f"{TOPIC_PREFIX}**", "--output", str(data / "output")),
        *("--checkpoint", str(data / "checkpoint"), "--master", "local[2]"),
        *("--window-s", str(WINDOW_S), "--lateness-s", str(LATENESS_S)),
        *(f"--low={LOW}", f"--high={HIGH}", "--tolerance", str(TOLERANCE)),
        *("--baseline-readings-min", str(BASELINE_READINGS_MIN)),
        *(f"--conf={key}={value}" for key, value in conf.items()),
    ]
