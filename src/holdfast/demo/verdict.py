"""What the world says: its own books, and what would be in them if every process had just gone ahead."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ..cli.console import SafeText
from ..records import Entry
from .children import Child
from .display import make_table
from .timeline import count_takers
from .world import Record, World


def make_books(world: World, children: Sequence[Child]) -> Table:
    """Every line of both books."""
    names = {child.pid: SafeText(child.name, style=child.style) for child in children}
    table = make_table()
    for title in ("book", "what", "to"):
        table.add_column(title)
    table.add_column("amount", justify="right", no_wrap=True)
    table.add_column("process", no_wrap=True)
    books: list[tuple[str, list[Record]]] = [("bank", world.bank.read()), ("post", world.post.read())]
    for book, records in books:
        for record in records:
            amount = f"${record.cents / 100:.2f}" if record.cents else ""
            what, to = SafeText(record.what), SafeText(record.to)
            table.add_row(book, what, to, amount, names.get(record.by, str(record.by)))
    return table


def tell_books(world: World, entries: Sequence[Entry]) -> str:
    """What it comes to, counted in the books and in the journal."""
    payments, letters = len(world.bank.read()), len(world.post.read())
    wanted_payments, wanted_letters = (
        count_takers(entries, "pay_refund"),
        count_takers(entries, "send_letter"),
    )
    return (
        f"[bold green]{_count(payments, 'payment')}, {_count(letters, 'letter')}.[/] "
        f"By the journal, {wanted_payments} processes faced the payment without a result, and "
        f"{wanted_letters} the letter. Just running it each time: {_count(wanted_payments, 'payment')}, "
        f"{_count(wanted_letters, 'letter')}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
