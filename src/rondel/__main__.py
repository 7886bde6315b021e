"""`python -m rondel` is the command line."""

from rondel.cli.main import main

main()
