"""One realistic update of every kind that Telegram sends, and the odd ones, each with the keys it must give.

`ANN` is a person in her private chat (same id), `GROUP` a supergroup with topics, `CHANNEL` a channel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

ANN, BOB, BOT = 7, 8, 99
GROUP, CHANNEL, DIRECT = -1001000000001, -1002000000002, -1003000000003
GROUP_ANONYMOUS, CHANNEL_BOT, SERVICE = 1087968824, 136817688, 777000
LINK = "conn:1/{x}"
BUSINESS = f"business:{LINK}"
NOW = 1_780_000_000


class Case(NamedTuple):
    """An update and the keys of ChatUser, User, Chat, ChatTopic and ChatTopicUser for it."""

    kind: str
    body: dict[str, Any]
    keys: tuple[Any, Any, Any, Any, Any]

    @property
    def update(self) -> dict[str, Any]:
        """The whole update as Telegram sends it."""
        return {"update_id": 10_000, self.kind: self.body}


def user(number: int = ANN, **more: Any) -> dict[str, Any]:
    """A User of the Bot API."""
    return {"id": number, "is_bot": number in {BOT, GROUP_ANONYMOUS, CHANNEL_BOT}, "first_name": "Ann"} | more


def private(number: int = ANN, **more: Any) -> dict[str, Any]:
    """A private Chat."""
    return {"id": number, "type": "private", "first_name": "Ann"} | more


def group(**more: Any) -> dict[str, Any]:
    """A supergroup with topics."""
    return {"id": GROUP, "type": "supergroup", "title": "Group", "is_forum": True} | more


def channel(**more: Any) -> dict[str, Any]:
    """A channel."""
    return {"id": CHANNEL, "type": "channel", "title": "Channel"} | more


def message(chat: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A Message with text, of nobody yet."""
    return {"message_id": 5, "date": NOW, "chat": chat, "text": "hi"} | more


def pressed(**more: Any) -> dict[str, Any]:
    """A CallbackQuery of Ann."""
    return {"id": "1", "from": user(), "chat_instance": "2", "data": "x"} | more


def member(status: str, **more: Any) -> dict[str, Any]:
    """A ChatMember: Bob."""
    return {"status": status, "user": user(BOB)} | more


def boost_source(**more: Any) -> dict[str, Any]:
    """Why a chat was boosted."""
    return {"source": "premium", "user": user()} | more


TOPIC = {"message_thread_id": 42, "is_topic_message": True}
REPLIES = {"message_thread_id": 41}
DM = {"direct_messages_topic": {"topic_id": 77, "user": user()}}
DM_CHAT = {"id": DIRECT, "type": "supergroup", "title": "Channel", "is_direct_messages": True}
ORDINARY = ((GROUP, ANN), (ANN,), (GROUP,), (GROUP, 0), (GROUP, 0, ANN))
IN_TOPIC = ((GROUP, ANN), (ANN,), (GROUP,), (GROUP, 42), (GROUP, 42, ANN))
PRIVATE = ((ANN, ANN), (ANN,), (ANN,), (ANN, 0), (ANN, 0, ANN))
CHATLESS = ((0, ANN), (ANN,), None, None, None)
NOBODY = (None, None, None, None, None)
IN_BUSINESS = (
    (BUSINESS, BOB, BOB),
    (BUSINESS, BOB),
    (BUSINESS, BOB),
    (BUSINESS, BOB, 0),
    (BUSINESS, BOB, 0, BOB),
)
AS_GUEST = (
    ("guest", GROUP, ANN),
    ("guest", ANN),
    ("guest", GROUP),
    ("guest", GROUP, 0),
    ("guest", GROUP, 0, ANN),
)
IN_DM = (
    ("dm:77", DIRECT, ANN),
    ("dm:77", ANN),
    ("dm:77", DIRECT),
    ("dm:77", DIRECT, 0),
    ("dm:77", DIRECT, 0, ANN),
)


def acting(chat: int, actor: int) -> tuple[Any, Any, Any, Any, Any]:
    """The keys of somebody in a chat, outside topics."""
    return ((chat, actor), (actor,), (chat,), (chat, 0), (chat, 0, actor))


def unattended(chat: int, thread: int = 0) -> tuple[Any, Any, Any, Any, Any]:
    """The keys of a chat with nobody in it."""
    return ((chat, 0), None, (chat,), (chat, thread), (chat, thread, 0))


KINDS = {
    "message": Case("message", message(private(), **{"from": user()}), PRIVATE),
    "edited_message": Case(
        "edited_message", message(group(), edit_date=NOW, **TOPIC, **{"from": user()}), IN_TOPIC
    ),
    "channel_post": Case("channel_post", message(channel(), sender_chat=channel()), unattended(CHANNEL)),
    "edited_channel_post": Case(
        "edited_channel_post", message(channel(), sender_chat=channel(), edit_date=NOW), unattended(CHANNEL)
    ),
    "business_connection": Case(
        "business_connection",
        {"id": LINK, "user": user(), "user_chat_id": ANN, "date": NOW, "is_enabled": True},
        ((BUSINESS, 0, ANN), (BUSINESS, ANN), None, None, None),
    ),
    "business_message": Case(
        "business_message",
        message(private(BOB), business_connection_id=LINK, **{"from": user(BOB)}),
        IN_BUSINESS,
    ),
    "edited_business_message": Case(
        "edited_business_message",
        message(private(BOB), business_connection_id=LINK, edit_date=NOW, **{"from": user(BOB)}),
        IN_BUSINESS,
    ),
    "deleted_business_messages": Case(
        "deleted_business_messages",
        {"business_connection_id": LINK, "chat": private(BOB), "message_ids": [1, 2]},
        ((BUSINESS, BOB, 0), None, (BUSINESS, BOB), (BUSINESS, BOB, 0), (BUSINESS, BOB, 0, 0)),
    ),
    "guest_message": Case(
        "guest_message", message(group(), guest_query_id="g1", **{"from": user()}), AS_GUEST
    ),
    "message_reaction": Case(
        "message_reaction",
        {
            "chat": group(),
            "message_id": 5,
            "user": user(),
            "date": NOW,
            "old_reaction": [],
            "new_reaction": [{"type": "emoji", "emoji": "👍"}],
        },
        ORDINARY,
    ),
    "message_reaction_count": Case(
        "message_reaction_count",
        {
            "chat": channel(),
            "message_id": 5,
            "date": NOW,
            "reactions": [{"type": {"type": "emoji", "emoji": "👍"}, "total_count": 3}],
        },
        unattended(CHANNEL),
    ),
    "inline_query": Case(
        "inline_query",
        {"id": "1", "from": user(), "query": "q", "offset": "", "chat_type": "group"},
        CHATLESS,
    ),
    "chosen_inline_result": Case(
        "chosen_inline_result", {"result_id": "1", "from": user(), "query": "q"}, CHATLESS
    ),
    "callback_query": Case(
        "callback_query", pressed(message=message(group(), **TOPIC, **{"from": user(BOT)})), IN_TOPIC
    ),
    "shipping_query": Case(
        "shipping_query",
        {
            "id": "1",
            "from": user(),
            "invoice_payload": "p",
            "shipping_address": {
                "country_code": "PT",
                "state": "",
                "city": "Lisboa",
                "street_line1": "R. 1",
                "street_line2": "",
                "post_code": "1000",
            },
        },
        CHATLESS,
    ),
    "pre_checkout_query": Case(
        "pre_checkout_query",
        {"id": "1", "from": user(), "currency": "EUR", "total_amount": 900, "invoice_payload": "p"},
        CHATLESS,
    ),
    "purchased_paid_media": Case(
        "purchased_paid_media", {"from": user(), "paid_media_payload": "p"}, CHATLESS
    ),
    "poll": Case(
        "poll",
        {
            "id": "1",
            "question": "?",
            "options": [],
            "total_voter_count": 0,
            "is_closed": True,
            "is_anonymous": True,
            "type": "regular",
            "allows_multiple_answers": False,
            "allows_revoting": False,
            "members_only": False,
        },
        NOBODY,
    ),
    "poll_answer": Case(
        "poll_answer",
        {"poll_id": "1", "user": user(), "option_ids": [0], "option_persistent_ids": ["a"]},
        CHATLESS,
    ),
    "my_chat_member": Case(
        "my_chat_member",
        {
            "chat": private(),
            "from": user(),
            "date": NOW,
            "old_chat_member": {"status": "member", "user": user(BOT)},
            "new_chat_member": {"status": "kicked", "user": user(BOT), "until_date": 0},
        },
        PRIVATE,
    ),
    "chat_member": Case(
        "chat_member",
        {
            "chat": group(),
            "from": user(),
            "date": NOW,
            "old_chat_member": member("left"),
            "new_chat_member": member("member"),
        },
        ORDINARY,
    ),
    "chat_join_request": Case(
        "chat_join_request", {"chat": group(), "from": user(), "user_chat_id": ANN, "date": NOW}, ORDINARY
    ),
    "chat_boost": Case(
        "chat_boost",
        {
            "chat": channel(),
            "boost": {"boost_id": "b", "add_date": NOW, "expiration_date": NOW, "source": boost_source()},
        },
        acting(CHANNEL, ANN),
    ),
    "removed_chat_boost": Case(
        "removed_chat_boost",
        {"chat": channel(), "boost_id": "b", "remove_date": NOW, "source": boost_source()},
        acting(CHANNEL, ANN),
    ),
    "managed_bot": Case("managed_bot", {"user": user(), "bot": user(BOT)}, CHATLESS),
    "subscription": Case(
        "subscription", {"user": user(), "invoice_payload": "p", "state": "active"}, CHATLESS
    ),
    "stopped_message_generation": Case(
        "stopped_message_generation",
        {"chat": private(), "draft_id": 3, "message_thread_id": 42},
        ((ANN, ANN), (ANN,), (ANN,), (ANN, 42), (ANN, 42, ANN)),
    ),
}

ODD = {
    "message in a group": Case("message", message(group(), **{"from": user()}), ORDINARY),
    "reply in an ordinary group": Case("message", message(group(), **REPLIES, **{"from": user()}), ORDINARY),
    "message in a topic": Case("message", message(group(), **TOPIC, **{"from": user()}), IN_TOPIC),
    "private chat with topics": Case(
        "message",
        message(private(), **TOPIC, **{"from": user()}),
        ((ANN, ANN), (ANN,), (ANN,), (ANN, 42), (ANN, 42, ANN)),
    ),
    "edited reply in an ordinary group": Case(
        "edited_message", message(group(), edit_date=NOW, **REPLIES, **{"from": user()}), ORDINARY
    ),
    "anonymous administrator": Case(
        "message",
        message(group(), sender_chat=group(), **{"from": user(GROUP_ANONYMOUS)}),
        acting(GROUP, GROUP),
    ),
    "somebody as a channel": Case(
        "message",
        message(group(), sender_chat=channel(), **{"from": user(CHANNEL_BOT)}),
        acting(GROUP, CHANNEL),
    ),
    "post forwarded from the linked channel": Case(
        "message",
        message(group(), sender_chat=channel(), is_automatic_forward=True, **{"from": user(SERVICE)}),
        acting(GROUP, CHANNEL),
    ),
    "fake user without its chat": Case(
        "message", message(group(), **{"from": user(CHANNEL_BOT)}), unattended(GROUP)
    ),
    "signed channel post": Case(
        "channel_post", message(channel(), sender_chat=channel(), **{"from": user()}), acting(CHANNEL, ANN)
    ),
    "owner in a business chat": Case(
        "business_message",
        message(private(BOB), business_connection_id=LINK, **{"from": user()}),
        (
            (BUSINESS, BOB, ANN),
            (BUSINESS, ANN),
            (BUSINESS, BOB),
            (BUSINESS, BOB, 0),
            (BUSINESS, BOB, 0, ANN),
        ),
    ),
    "press in a business chat": Case(
        "callback_query",
        pressed(
            message=message(private(BOB), business_connection_id=LINK, **{"from": user(BOT)}),
            **{"from": user(BOB)},
        ),
        IN_BUSINESS,
    ),
    "guest in a topic": Case(
        "guest_message",
        message(group(), guest_query_id="g1", **TOPIC, **{"from": user()}),
        (
            ("guest", GROUP, ANN),
            ("guest", ANN),
            ("guest", GROUP),
            ("guest", GROUP, 42),
            ("guest", GROUP, 42, ANN),
        ),
    ),
    "press under a guest's answer": Case(
        "callback_query",
        pressed(message=message(group(), guest_bot_caller_user=user(), **{"from": user(BOT)})),
        AS_GUEST,
    ),
    "another guest's answer": Case(
        "message",
        message(group(), guest_bot_caller_user=user(), **{"from": user(BOB)}),
        acting(GROUP, BOB),
    ),
    "direct message to a channel": Case("message", message(DM_CHAT, **DM, **{"from": user()}), IN_DM),
    "edited direct message to a channel": Case(
        "edited_message", message(DM_CHAT, edit_date=NOW, **DM, **{"from": user()}), IN_DM
    ),
    "press in direct messages": Case(
        "callback_query",
        pressed(message=message(DM_CHAT, sender_chat=channel(), **DM, **{"from": user(BOT)})),
        IN_DM,
    ),
    "press in direct messages, inaccessible": Case(
        "callback_query",
        pressed(message={"chat": DM_CHAT, "message_id": 5, "date": 0}),
        (
            ("dm:0", DIRECT, ANN),
            ("dm:0", ANN),
            ("dm:0", DIRECT),
            ("dm:0", DIRECT, 0),
            ("dm:0", DIRECT, 0, ANN),
        ),
    ),
    "press under a message of an anonymous administrator": Case(
        "callback_query",
        pressed(message=message(group(), sender_chat=group(), **{"from": user(GROUP_ANONYMOUS)})),
        ORDINARY,
    ),
    "press under a reply": Case(
        "callback_query", pressed(message=message(group(), **REPLIES, **{"from": user(BOT)})), ORDINARY
    ),
    "press on an inaccessible message": Case(
        "callback_query", pressed(message={"chat": group(), "message_id": 5, "date": 0}), ORDINARY
    ),
    "press on an inline message": Case("callback_query", pressed(inline_message_id="i"), CHATLESS),
    "anonymous reaction": Case(
        "message_reaction",
        {
            "chat": group(),
            "message_id": 5,
            "actor_chat": channel(),
            "date": NOW,
            "old_reaction": [],
            "new_reaction": [],
        },
        acting(GROUP, CHANNEL),
    ),
    "anonymous vote": Case(
        "poll_answer",
        {
            "poll_id": "1",
            "voter_chat": channel(),
            "user": user(CHANNEL_BOT),
            "option_ids": [0],
            "option_persistent_ids": ["a"],
        },
        ((0, CHANNEL), (CHANNEL,), None, None, None),
    ),
    "member changed by an anonymous administrator": Case(
        "chat_member",
        {
            "chat": group(),
            "from": user(GROUP_ANONYMOUS),
            "date": NOW,
            "old_chat_member": member("left"),
            "new_chat_member": member("member"),
        },
        acting(GROUP, GROUP),
    ),
    "boost of a giveaway that nobody claimed": Case(
        "removed_chat_boost",
        {
            "chat": channel(),
            "boost_id": "b",
            "remove_date": NOW,
            "source": {"source": "giveaway", "giveaway_message_id": 5, "is_unclaimed": True},
        },
        unattended(CHANNEL),
    ),
    "generation stopped in a group": Case(
        "stopped_message_generation",
        {"chat": group(), "draft_id": 3, "message_thread_id": 42},
        unattended(GROUP, 42),
    ),
}

CASES = KINDS | ODD
