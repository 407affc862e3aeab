"""Durable webhooks: what was accepted is delivered, across crashes."""
