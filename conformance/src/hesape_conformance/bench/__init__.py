"""Measure a driver beside the best plain script on the same store, in one run, interleaved.

A figure without its ceiling says little: machines drift by half from one run to the next. So each round measures the
ceiling and the driver in turn, and what is reported is the median of each and their ratio.
"""
