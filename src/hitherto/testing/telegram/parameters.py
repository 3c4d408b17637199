"""The parameters of a Bot API call, whichever way they were sent: forms carry numbers, flags and JSON as
text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from hitherto.testing.http import Upload

from .world import ApiError, Json

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_INTEGERS = re.compile(
    r"chat_id|from_chat_id|sender_chat_id|user_id|message_id|message_thread_id|reply_to_message_id|"
    r"offset|limit|timeout|max_connections|cache_time|direct_messages_topic_id|duration|width|height|"
    r"until_date"
)
_FLAGS = re.compile(
    r"show_alert|disable_notification|protect_content|drop_pending_updates|is_personal|"
    r"revoke_messages|is_big|is_anonymous|allows_multiple_answers|allow_paid_broadcast|remove_caption|"
    r"only_if_banned|ok"
)
_JSON = re.compile(
    r"allowed_updates|reply_markup|entities|caption_entities|explanation_entities|question_entities|"
    r"text_entities|link_preview_options|reply_parameters|message_ids|media|commands|scope|results|"
    r"result|button|reaction|permissions|options|rights|menu_button|prices|suggested_tip_amounts|"
    r"shipping_options|errors|checklist|content|accepted_gift_types|suggested_post_parameters|"
    r"mask_position|stickers|input_sticker|keywords|emoji_list"
)


def normalize(raw: Mapping[str, Any]) -> Json:
    """The parameters as values; a JSON part that is not JSON is a 400."""
    return {name: _value(name, value) for name, value in raw.items() if value is not None}


def _value(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if _INTEGERS.fullmatch(name) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    if _FLAGS.fullmatch(name):
        return value.strip().lower() in ("true", "yes", "1", "t", "y")
    if _JSON.fullmatch(name) and value.strip():
        return _json(name, value)
    return value


def _json(name: str, value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ApiError(400, f"Bad Request: can't parse {name} JSON object") from None


class Parameters(dict[str, Any]):
    """The parameters of one call, with the checks Telegram makes."""

    def number(self, name: str, default: int | None = None) -> int:
        """An integer; 400 if it is missing (and there is no default) or something else."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ApiError(
                400, f"Bad Request: parameter {name} is {'required' if value is None else 'invalid'}"
            )
        return value

    def text(self, name: str, default: str = "") -> str:
        """A text; 400 if it is something else."""
        value = self.get(name, default)
        if not isinstance(value, str):
            raise ApiError(400, f"Bad Request: parameter {name} is invalid")
        return value

    def listed(self, name: str) -> list[Any]:
        """A list, empty when missing; 400 if it is something else."""
        value = self.get(name, [])
        if not isinstance(value, list):
            raise ApiError(400, f"Bad Request: parameter {name} is invalid")
        return value

    def mapping(self, name: str) -> Json:
        """An object, empty when missing; 400 if it is something else."""
        value = self.get(name, {})
        if not isinstance(value, dict):
            raise ApiError(400, f"Bad Request: object expected as {name}")
        return value

    def file(self, name: str) -> Upload | str:
        """A file: an upload (given itself or as attach://name), or the id or address of one; 400 if
        missing."""
        value = self.get(name)
        if isinstance(value, str) and value.startswith("attach://"):
            value = self.get(value.removeprefix("attach://"))
        if not isinstance(value, Upload | str) or value == "":
            raise ApiError(400, f"Bad Request: there is no {name} in the request")
        return value
