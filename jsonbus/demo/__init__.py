"""`jsonbus demo`: the product at work on this machine, in processes of its own.

Two shows share one stage and one view. `jsonbus demo` runs sensors, bus, bridge and Spark, and
compares the counts of all stations at the end. `jsonbus demo --bus` runs sensors and a late
subscriber in each mode, without Spark. All traffic stays on loopback, on a free port, and no
process outlives the demo. Files in the order in which a show uses them:

processes.py       starts, reads and ends processes; loopback and a free port
sensor.py          the program of one node: a sensor, the master or the late subscriber
view.py            shows a scene to people: a live screen, or plain lines in a pipe
stage.py           runs a show: its processes, its inbox, waiting, time
bus_show.py        `--bus`: scene, stage and summary of the three modes
pipeline_scene.py  the state of the pipeline, its screen, and what must be equal at its end
script.py          what goes wrong in the pipeline, and when
pipeline_show.py   the pipeline: its stage, the commands of its processes, its verdict

jsonbus.cli.commands.demo calls `show_bus` and `show_pipeline`. The demo uses the public names of
jsonbus, and spark_bridge.wire to ask the bridge for its figures.
"""
