"""`python -m truecopy` is the program."""

from truecopy.cli.main import main

main()
