"""The command line explains itself. Commands like those in commands/, which is full:

help.py        one page, all pages, or a man page
completion.py  what to add to the settings of a shell
pages.py       the pages, from the same source as --help
"""
