"""The front end for asyncio."""
