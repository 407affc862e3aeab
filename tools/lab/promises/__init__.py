"""The promises of the bus, checked on real processes: `python3 -m tools.lab --promises`.

The simulator checks what the core promises under a virtual clock. Here the same promises are
checked on what people run: on every host one `jsonbus pub` or `jsonbus sub --gaps`, with sockets,
threads, pipes and signals. The publishers are fed through their standard input, so the lab knows
all that was published; it started the subscribers, so it knows all that was subscribed, and when. A
tap in the hub sees what every host sends before anything is lost. Nobody's word is taken: not even
a gap's, which must count messages that were published and did not come.

A run is a sequence of rounds, drawn from a seed:

    faults    bursts of loss, delay, repeats and another order; deaf hosts, split networks,
              interfaces down; processes stopped, terminated, killed, and started with other wishes
    settling  the network is whole, everybody runs; they may take a lease and a grace to agree
    calm      now everything must arrive, and nothing is sent that nobody wants

What must hold always is judged in all phases, over the whole life of every process. After the last
round nobody publishes any more, and all subscription lists must become equal.

plan.py      draws the faults of a run
record.py    the truth: lives, publications, deliveries, what was seen on the wire
tap.py       a process in the hub that sees what hosts send
unsealing.py opens what they send on a sealed bus
cast.py      the processes: started, fed, stopped, ended, read
run.py       does what the plan says, and waits for what must come true
judges.py    one function for each promise
figures.py   the table at the end
"""
