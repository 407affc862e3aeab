"""The HTTP interface of the gateway."""
