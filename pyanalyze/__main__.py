"""Run the command line as ``python -m pyanalyze``."""

from pyanalyze.cli import main

if __name__ == "__main__":
    main()
