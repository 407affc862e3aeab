"""A sealed bus in the simulated world, and somebody on its network who has no key.

Every node of a sealed world seals and opens with the production Sealer and Opener; what they would
take from clocks and from the system's randomness comes from the world's clock and dice. The
attacker hears every datagram, also those that the network loses or a cut swallows. He may send any
bytes to any node from any address, when he likes: what he recorded, changed or whole, at once or
minutes later, and what he invents. Held back is what a cut swallows and he plays later.

The promises of all other histories hold here as well. What he may do is what a bad network does:
delay what it did not deliver, for as long as datagrams are fresh.

bus.py        SealedBus: seals what nodes send, opens what arrives at them
attacker.py   what the attacker records and sends
attacks.py    which attacks happen when, in a random history
checkers.py   promises of a sealed bus

Imported only by worlds that are sealed: cryptography need not be there for others.
"""
