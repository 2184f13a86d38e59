"""`python -m foretrace` is the `foretrace` command."""

from .cli.main import run

if __name__ == "__main__":
    run()
