"""A storage of your own: every record in one JSON file. Any object with these seven methods will do.

Turns are then ordered and exclusive within this process; several processes need one of the library's stores.
"""

import asyncio
import json
from pathlib import Path

from hitherto import Flow, Keeper, State


class JSONFileStorage:
    def __init__(self, path):
        self.path = Path(path)

    async def init(self, bot, **options):
        self.records = json.loads(self.path.read_text()) if self.path.exists() else {}

    async def get_state(self, bot, key):
        return self.records.get(json.dumps([bot, key]))

    async def set_state(self, bot, key, record):
        self._keep(bot, key, {name: getattr(record, name) for name in ("flow", "state", "data", "version")})

    async def get_data(self, bot, key):
        return (await self.get_state(bot, key) or {}).get("data")

    async def set_data(self, bot, key, data):
        self._keep(bot, key, {**(await self.get_state(bot, key) or {}), "data": data})

    async def update_data(self, bot, key, new):
        await self.set_data(bot, key, {**(await self.get_data(bot, key) or {}), **new})
        return await self.get_data(bot, key)

    async def clear(self, bot, key):
        self._keep(bot, key, None)

    def _keep(self, bot, key, record):
        records = {**self.records, json.dumps([bot, key]): record}
        self.path.with_suffix(".new").write_text(json.dumps(records))
        self.path.with_suffix(".new").replace(self.path)
        self.records = records


class Counting(Flow):
    counting = State(initial=True)


async def count(turn):
    if turn.flow is None:
        turn.start(Counting)
    turn.data["n"] = turn.data.get("n", 0) + 1
    print(turn.event["text"], turn.data["n"])


async def main(path="counter.json"):
    keeper = Keeper(
        "counter", store=JSONFileStorage(path), flows=[Counting], key=lambda event: (event["from"],)
    )
    async with keeper:
        for text in ("one", "two", "three"):
            await keeper.handle({"from": "Ann", "text": text}, count)


if __name__ == "__main__":
    asyncio.run(main())
