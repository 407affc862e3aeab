"""`jsonbus demo`: the product at work on this machine."""
