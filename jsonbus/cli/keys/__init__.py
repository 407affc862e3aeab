"""The command about keys.

keygen.py   makes the keys of a sealed bus, and changes them
"""
