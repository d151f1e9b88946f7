"""The shop's site: who may do so has an invoice sent, by a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
from jobs import app, send_invoice
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import hesape


@attrs.frozen
class Invoice:
    """An invoice, and whose it is."""

    number: int
    tenant: str


INVOICES = {42: Invoice(42, "acme"), 43: Invoice(43, "globex")}
SESSIONS = {  # stands for your sessions or tokens
    "anna's": hesape.Subject(id="anna", tenant="acme", roles=["clerk"]),
    "gus's": hesape.Subject(id="gus", tenant="globex", roles=["clerk"]),
    "mallory's": hesape.Subject(id="mallory", tenant="acme", roles=["guest"]),
}


class InvoicePolicy:
    """Clerks send the invoices of their own tenant."""

    def can(self, subject: hesape.Subject, action: str, invoice: Invoice) -> bool:
        """Whether this subject may."""
        return "clerk" in subject.roles and invoice.tenant == subject.tenant


def subject_of(request: Request) -> hesape.Subject:
    """Who asks, and for which tenant: from the session, never from the request's body or path."""
    subject = SESSIONS.get(request.headers.get("authorization", "").removeprefix("Bearer "))
    if subject is None:
        raise HTTPException(401)
    return subject


async def send(request: Request) -> Response:
    """Take the wish to have an invoice sent."""
    subject, invoice = subject_of(request), INVOICES.get(request.path_params["number"])
    if invoice is None:
        raise HTTPException(404)
    grant = hesape.authorize(InvoicePolicy(), subject, "invoice.send", invoice)
    job = await app.connection().aio.push(grant, send_invoice.job(grant, number=invoice.number))
    return JSONResponse({"job": job.id}, status_code=202)


async def refuse(request: Request, error: Exception) -> Response:
    """Answer a push that the policy doesn't allow, or that the store couldn't take."""
    if isinstance(error, hesape.ForbiddenError):
        return JSONResponse({"error": error.code}, status_code=403)
    return JSONResponse({"error": "try again later"}, status_code=503)


@asynccontextmanager
async def closing(site: Starlette) -> AsyncIterator[None]:
    """Close the connections when the site ends."""
    yield
    app.close()


site = Starlette(
    routes=[Route("/invoices/{number:int}/send", send, methods=["POST"])],
    exception_handlers={hesape.ForbiddenError: refuse, hesape.StoreError: refuse},
    lifespan=closing,
)
