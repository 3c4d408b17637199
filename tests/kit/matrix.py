"""Which clause catches which wrong store, all of them on all of them: ``python -m kit.matrix`` in tests/.

The suite tries a wrong store on the clauses it names; this finds those that a new one should name.
"""

from __future__ import annotations

import asyncio

from hitherto.testing import ChatStateContract, FSMStorageContract, StoreContract, clauses
from kit import wrong_accepting, wrong_chat, wrong_primitives, wrong_records, wrong_settling
from kit.wrong import WRONG, Wrong, tried

HOMES = (wrong_accepting, wrong_chat, wrong_primitives, wrong_records, wrong_settling)


class Whole(StoreContract):
    """Every clause there is."""

    abilities = frozenset({"reopens", "shared"})


ON_STORES = (
    "test_bots_have_their_own_chat_state",
    "test_conversations_are_not_touched",
    "test_what_is_over_leaves_nothing_to_list",
)
CLAUSES = tuple(name for name in clauses(Whole) if name != "test_the_contract_is_whole")
FOR = {
    "storage": {name for name in CLAUSES if name in clauses(FSMStorageContract)},
    "chat": {name for name in CLAUSES if name in (*clauses(ChatStateContract), *ON_STORES)},
    "store": set(CLAUSES),
}
"""The clauses that can be tried on a wrong storage of seven methods, a wrong chat state and a wrong store."""


async def catches(clause: str, wrong: Wrong) -> bool:
    """Whether the clause fails, with an assertion, on this wrong store."""
    try:
        await tried(clause, wrong.make, wrong.what, Whole)
    except AssertionError:
        return True
    return False


async def main() -> None:
    """Try everything on everything and print who is caught by whom, the most particular ones first."""
    caught: dict[str, list[str]] = {name: [] for name in CLAUSES}
    for wrong in WRONG:
        for name in sorted(FOR[wrong.what]):
            try:
                if await catches(name, wrong):
                    caught[name].append(wrong.name)
            except Exception as error:
                print(f"{wrong.name} breaks {name}: {error!r}"[:200])
    times = {wrong.name: sum(wrong.name in found for found in caught.values()) for wrong in WRONG}
    for name, found in caught.items():
        print(name, "<-", ", ".join(sorted(found, key=times.__getitem__)[:5]) or "NOBODY")
    print("caught by nobody:", [name for name, number in times.items() if not number])


if __name__ == "__main__":
    asyncio.run(main())
