// Vercel's Chat SDK: messages handled per second on one of its stores, alone and a hundred threads at once.
// node chat.mjs redis|postgres URL SECONDS, beside a node_modules with `chat` and its two state adapters.
import { Chat, ConsoleLogger, Message } from "chat";

const [, , place, url, seconds] = process.argv;
const logger = new ConsoleLogger("silent");
let state;
if (place === "redis") state = (await import("@chat-adapter/state-redis")).createRedisState({ url, logger });
else state = (await import("@chat-adapter/state-pg")).createPostgresState({ url, logger });

const adapter = {
  name: "bench", userName: "bot", lockScope: "thread",
  initialize: async () => {}, disconnect: async () => {},
  channelIdFromThreadId: (id) => id.split(":").slice(0, 2).join(":"),
  encodeThreadId: (id) => id, decodeThreadId: (id) => id, isDM: () => false,
};
const chat = new Chat({ userName: "bot", adapters: { bench: adapter }, state, logger, concurrency: "queue" });
chat.onNewMessage(/./, async (thread) => {
  const found = (await thread.state) ?? {};
  await thread.setState({ ...found, name: "Ann", step: (found.step ?? 0) + 1 });
});
await chat.initialize();

let number = Date.now() * 1000;
const one = (who) => {
  const threadId = `bench:C${who}:${who}`;
  const author = { userId: "U1", userName: "ann", fullName: "Ann", isBot: false, isMe: false };
  const message = new Message({
    id: `m${number++}`, threadId, text: "hello", raw: {}, attachments: [], links: [], author,
    formatted: { type: "root", children: [] }, metadata: { dateSent: new Date(), edited: false },
  });
  return chat.handleIncomingMessage(adapter, threadId, message);
};

const rate = async (threads) => {
  let done = 0;
  const began = performance.now(), end = began + seconds * 1000;
  await Promise.all(Array.from({ length: threads }, async (_, who) => {
    while (performance.now() < end) { await one(who); done++; }
  }));
  return (done * 1000) / (performance.now() - began);
};

await rate(100);
for await (const line of (await import("node:readline")).createInterface({ input: process.stdin })) {
  console.log(JSON.stringify({ rate: await rate(Number(line)) }));
}
process.exit(0);
