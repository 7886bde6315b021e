"""`python -m rondel` is the command line."""

from rondel.run.cli import main

main()
