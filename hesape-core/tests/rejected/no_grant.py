"""A type checker must reject every marked line: `test_typing` compares."""

from typing import cast

from hesape import Driver, Grant, Job, PreparedJob, Queue, system_grant

queue = cast("Queue", None)
driver = cast("Driver", None)
grant = system_grant("invoice.send", "acme")
job = Job.new(grant, "invoice.send")

queue.push(job)  # rejected: no grant
queue.push("acme", job)  # rejected: a text is no grant
queue.later(60, job)  # rejected: no grant
queue.bulk([job])  # rejected: no grant
queue.push_raw("invoice.send", b"{}")  # rejected: no grant
Job.new("acme", "invoice.send")  # rejected: a text is no grant
Grant()  # rejected: grants are issued
Grant("acme")  # rejected: grants are issued
driver.store([job])  # rejected: a job is not prepared
driver.store(job)  # rejected: a job is not prepared
PreparedJob()  # rejected: only prepare makes one
PreparedJob(job)  # rejected: only prepare makes one

queue.push(grant, job)
