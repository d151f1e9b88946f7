"""For an application's own tests: jobs, queues and a clock that need no store.

    FakeJob     a job to call a handler with; remembers how it was settled
    FakeQueue   a queue to push to, with assertions about what was pushed and settled; `drain` runs the handlers
    fake        puts FakeQueues in the place of an App's connections for the length of a block
    Clock       the time of a FakeQueue, which stands still until it is moved

    def test_an_order_sends_its_invoice():
        with hesape.testing.fake(app) as queue:
            place_order(customer="c1")
            queue.assert_pushed("invoice.send", times=1, where=lambda job: job.decode()["invoice_id"] == 42)
            queue.drain()
            queue.assert_settled("invoice.send", "delete")

With pytest, `pytest_plugins = ["hesape.testing.pytest_plugin"]` in a conftest.py offers these as fixtures.
"""

from hesape.testing.clock import Clock
from hesape.testing.fake_driver import Settlement
from hesape.testing.fake_job import FakeJob
from hesape.testing.fake_queue import FakeQueue, fake

__all__ = ["Clock", "FakeJob", "FakeQueue", "Settlement", "fake"]
