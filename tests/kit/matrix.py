"""Which wrong store is caught by which clause: ``python -m kit.matrix`` in tests/."""

from __future__ import annotations

import asyncio
import sys

from hitherto.testing import ChatStateContract, FSMStorageContract, StoreContract, clauses
from kit import everything_wrong
from kit.wrong import WRONG, tried


class Whole(StoreContract):
    abilities = frozenset({"reopens", "shared"})


ON_STORES = {
    "test_bots_have_their_own_chat_state": "",
    "test_conversations_are_not_touched": "",
    "test_what_is_over_leaves_nothing_to_list": "",
}
OF = {
    "storage": clauses(FSMStorageContract),
    "chat": {**clauses(ChatStateContract), **ON_STORES},
    "store": clauses(Whole),
}


async def main():
    names = [name for name in clauses(Whole) if name != "test_the_contract_is_whole"]
    caught = {name: [] for name in names}
    odd = {}
    for wrong in WRONG:
        for name in OF[wrong.what].keys() & set(names):
            try:
                await tried(name, wrong.make, wrong.what, Whole)
            except AssertionError:
                caught[name].append(wrong.name)
            except Exception as error:
                odd.setdefault(wrong.name, []).append((name, repr(error)[:60]))
    count = {wrong.name: sum(wrong.name in found for found in caught.values()) for wrong in WRONG}
    return caught, count, odd


if __name__ == "__main__":
    caught, count, odd = asyncio.run(main())
    for name, found in caught.items():
        print(name, "<-", ", ".join(sorted(found, key=count.get)[:4]) or "NOBODY")
    print([name for name, number in count.items() if not number], "are caught by nobody")
    if "-v" in sys.argv:
        print(odd)
    assert everything_wrong
