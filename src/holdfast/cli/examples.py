"""What `--help` gives as examples. `docs/cli.md` has them too, and a test runs every one."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("holdfast demo --fast",),
    "run": (
        'holdfast run clerk.py "Refund order 42" --session order-42',
        'holdfast run clerk.py:clerk "Refund order 43" --label tenant=acme --json',
    ),
    "resume": ("holdfast resume clerk.py killed", "holdfast resume clerk.py --all"),
    "sessions": (
        "holdfast sessions",
        "holdfast sessions --interrupted",
        "holdfast sessions --status waiting --label tenant=acme --json",
    ),
    "show": ("holdfast show killed", "holdfast show killed --last 10", "holdfast show family --brief"),
    "tail": ("holdfast tail killed -n 5", "holdfast tail killed -f", "holdfast tail killed --after 3 --json"),
    "diff": ("holdfast diff done 1", "holdfast diff done 1 2 --json"),
    "export": (
        "holdfast export done",
        "holdfast export done --form markdown --output done.md",
        "holdfast export done --form jsonl",
    ),
    "worker": (
        "holdfast worker clerk.py --until-idle",
        "holdfast worker clerk.py --concurrency 2 --label tenant=acme --until-idle --json",
    ),
    "workers": ("holdfast workers",),
    "stats": ("holdfast stats", "holdfast stats done killed --json"),
    "blobs": ("holdfast blobs", "holdfast blobs gc", "holdfast blobs gc --remove --yes"),
    "submit": (
        'holdfast submit killed "Mind the gap" --key mail-17',
        "echo 'A long letter' | holdfast submit killed -",
        'holdfast submit order-44 "Refund order 44" --agent clerk --label tenant=acme',
    ),
    "cancel": ('holdfast cancel killed --reason "maintenance tonight"',),
    "pending": ("holdfast pending", "holdfast pending asking --json"),
    "approve": (
        "holdfast approve asking c-refund",
        """holdfast approve asking c-refund --args '{"order": "42", "cents": 4900}' --note "half is fair" """,
    ),
    "refuse": ('holdfast refuse asking c-refund --reason "not without a receipt"',),
    "resolve": (
        'holdfast resolve doubtful c-charge landed --result "receipt 7" --note "seen at the bank"',
        "holdfast resolve doubtful c-charge not-landed --by ann",
        "holdfast resolve doubtful @11 gave-up",
    ),
    "resolve-operation": (
        "holdfast resolve-operation ed34c2178d39d70278cf488c56bb7f23189be62ce3d6d7f2a7315cf2806d1e0f landed",
    ),
    "fork": ("holdfast fork done --version 1 --into what-if",),
    "rewind": ("holdfast rewind done --steps 1", "holdfast rewind done --version 1 --undo clerk.py --yes"),
    "clean": ("holdfast clean done", "holdfast clean done --only transcript --yes"),
    "completion": ("holdfast completion bash > holdfast.bash",),
}


def show_examples(command: str) -> str:
    """The end of a command's help."""
    lines = "\n".join(f"  {line.strip()}" for line in EXAMPLES[command])
    return f"Examples:\n\n{lines}\n\nExit codes: holdfast --help"
