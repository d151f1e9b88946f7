"""The shop's jobs: what a worker runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import hesape

app = hesape.App()


@app.handler("invoice.send", tries=5)
async def send_invoice(job: hesape.Job, number: int) -> None:
    """Send an invoice to its customer."""
    await asyncio.to_thread(mail, f"invoice {number}, asked for by {job.authorized_by}")


def mail(text: str) -> None:
    """Stands for a mail service. Nobody hands it the grant: the running job's is at hand wherever it is called."""
    grant = hesape.current_grant()
    under = f"{grant.tenant} {grant.action}" if grant else "nobody's"  # outside of a job there is none
    with Path("sent.txt").open("a", encoding="utf-8") as file:
        file.write(f"{under}: {text}\n")
