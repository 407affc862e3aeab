"""One module per command, each with its click command as `command`; imported when it is run.

Publish, subscribe, request:  pub.py, sub.py, request.py, serve.py, channel.py
See who is there:             node.py, nodes.py, topics.py, ping.py
See what flows:               top.py, hz.py, bw.py
Find out why:                 explain.py, doctor.py
Keep traffic:                 record.py, replay.py
Connect other worlds:         gateway.py, bridge.py
See all of it at work:        demo.py

CommandGroup finds them by name. What several commands use is in lib/; the screen of top is in top/.
"""
