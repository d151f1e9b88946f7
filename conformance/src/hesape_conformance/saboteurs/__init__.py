"""Saboteurs: drivers and cores that differ from real ones by one line, each with the exact rules that it must fail.

They test the suite. A saboteur that survives shows a rule that proves nothing; a rule without a saboteur is a rule that
nobody has seen fail. They are data, in TOML files of a folder (see `model`), so an author of a driver can write some of
their own:

    python -m hesape_conformance.saboteurs FOLDER

The altered line is put into a copy of its package, made of links, and every run is a process of its own that finds the
copy first. Nothing of the installed package is touched.
"""
