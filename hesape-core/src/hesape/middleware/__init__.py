"""Middleware that ships: what runs around a handler, in the App's list (every handler) or in a handler's own.

    app.middleware.append(rate_limited(100, 60, key="mail"))

    @app.handler("invoice.send", middleware=[without_overlapping(), fail_on_exception(ValueError)])

    without_overlapping   one job at a time of a name, or of a key
    rate_limited          so many runs in a time
    throttles_exceptions  after so many failures in a time, no further run until it is over
    skip.when, .unless    drop a job without running it
    fail_on_exception     park at once, instead of retrying, on errors that no retry can mend

A middleware of one's own is any callable `(job, step) -> object` that calls `step()` to go on, or doesn't. Keys are
always within the job's tenant, so that one tenant never waits for another. Locks and counters live in the store that
the job came from, or behind failover in its first member, and follow that store's clock (K1). What these put back
doesn't spend an attempt.
"""

from hesape.middleware import skip
from hesape.middleware.failing import FailOnException, fail_on_exception
from hesape.middleware.limiting import RateLimited, rate_limited
from hesape.middleware.overlapping import WithoutOverlapping, without_overlapping
from hesape.middleware.throttling import ThrottlesExceptions, throttles_exceptions

__all__ = [
    "FailOnException",
    "RateLimited",
    "ThrottlesExceptions",
    "WithoutOverlapping",
    "fail_on_exception",
    "rate_limited",
    "skip",
    "throttles_exceptions",
    "without_overlapping",
]
