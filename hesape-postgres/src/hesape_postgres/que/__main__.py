"""`python -m hesape_postgres.que migrate ADDRESS` makes the table `que_jobs` unless it is there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import psycopg

from hesape.errors import HesapeError
from hesape.masking import mask
from hesape_postgres.que.schema import migrate


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 done, 1 failure, 2 usage."""
    parser = argparse.ArgumentParser(prog="que", description="Look after a Que table of schema version 3.")
    parser.add_argument("command", choices=["migrate"], help="make the table que_jobs unless it is there")
    parser.add_argument("address", help="a PostgreSQL address, such as postgresql://user@host/database")
    options = parser.parse_args(argv)
    try:
        with psycopg.connect(options.address, autocommit=True) as connection:
            made = migrate(connection)
    except psycopg.Error as error:
        sys.stderr.write(f"error[store-unavailable]: {mask(options.address)}: {type(error).__name__}\n")
        return 1
    except HesapeError as error:
        sys.stderr.write(f"error[{error.code}]: {error}\n")
        return 1
    sys.stdout.write(
        "que_jobs was made, schema version 3\n" if made else "que_jobs is there already, schema version 3\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
