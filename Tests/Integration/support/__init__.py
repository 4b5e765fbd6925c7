"""Support code of the tests: the program under test, clients, origins with faults, processes and measurements.

The package imports nothing from the tests. Tests of other folders import it too, with `Tests/Integration` in their path.
"""

import signal

# A shell starts background jobs with SIGINT ignored, and nohup ignores SIGHUP. Programs under test would inherit that.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)
