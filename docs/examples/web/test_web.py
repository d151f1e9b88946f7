"""The shop's own tests: no store, no worker."""

from __future__ import annotations

import pytest
from jobs import app
from starlette.testclient import TestClient
from web import site

from hesape.testing import fake


def test_a_clerks_wish_is_a_job_of_her_tenant() -> None:
    with fake(app) as queue, TestClient(site) as client:
        answer = client.post("/invoices/42/send", headers={"Authorization": "Bearer anna's"})
        [job] = queue.assert_pushed("invoice.send", times=1, tenant="acme", payload={"number": 42})
    assert (answer.status_code, answer.json(), job.authorized_by) == (202, {"job": job.id}, "anna")


@pytest.mark.parametrize(
    ("path", "session", "status"),
    [
        ("/invoices/42/send", "mallory's", 403),
        ("/invoices/43/send", "anna's", 403),
        ("/invoices/42/send", "nobody's", 401),
        ("/invoices/44/send", "anna's", 404),
    ],
)
def test_who_may_not_leaves_nothing(path: str, session: str, status: int) -> None:
    with fake(app) as queue, TestClient(site) as client:
        assert client.post(path, headers={"Authorization": f"Bearer {session}"}).status_code == status
        queue.assert_nothing_pushed()
