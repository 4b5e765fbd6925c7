"""Support code of the tests: the program under test, clients, origins with faults, processes and measurements.

The package imports nothing from the tests. Tests of other folders import it too, with `Tests/Integration` in their path.
"""
