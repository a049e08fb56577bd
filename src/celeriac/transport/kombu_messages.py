"""Between kombu's words and ours: exchanges, queues and messages."""

from typing import Any

import kombu

from celeriac.model.message import Exchange, Message, Queue

__all__ = ["kombu_exchange", "kombu_queue", "to_message", "to_task_message"]


def kombu_exchange(exchange: Exchange) -> Any:
    """Return an exchange as kombu has it."""
    return kombu.Exchange(exchange.name, type=exchange.type, durable=exchange.is_durable)


def kombu_queue(queue: Queue) -> Any:
    """Return a queue as kombu has it."""
    return kombu.Queue(
        queue.name,
        exchange=kombu_exchange(queue.exchange),
        routing_key=queue.routing_key,
        durable=queue.is_durable,
        exclusive=queue.is_exclusive,
        auto_delete=queue.is_auto_deleted,
        message_ttl=queue.message_ttl,
        expires=queue.expires,
        max_length=queue.max_length,
        max_priority=queue.max_priority,
        queue_arguments=None if queue.type is None else {"x-queue-type": queue.type},
    )


def to_message(message: Any) -> Message:
    """Return what kombu read as a message of ours."""
    body = message.body
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    if not isinstance(body, bytes | bytearray | memoryview):
        return Message(b"", fault="envelope")
    return Message(
        bytes(body),
        str(message.content_type),
        str(message.content_encoding),
        message.headers if isinstance(message.headers, dict) else {},
        str((message.delivery_info or {}).get("routing_key", "")),
        "",
        _property(message, "correlation_id"),
        _property(message, "reply_to"),
    )


def to_task_message(message: Any, *, max_bytes: int | None) -> Message:
    """Return what kombu read with all that is known of it; without its body, if that is too long."""
    info = message.delivery_info or {}
    exchange, priority = info.get("exchange"), (message.properties or {}).get("priority")
    # Celery: where kombu plays the broker, it says so in the message itself.
    raw = getattr(message, "_raw", None)
    is_redelivered = bool(info.get("redelivered") or (isinstance(raw, dict) and raw.get("redelivered")))
    ours = to_message(message)._replace(
        exchange=exchange if isinstance(exchange, str) else "",
        priority=priority if isinstance(priority, int) and 0 <= priority <= 255 else 0,
        is_redelivered=is_redelivered,
    )
    if max_bytes is not None and len(ours.body) > max_bytes:
        return ours._replace(body=b"", fault="body-size")
    return ours


def _property(message: Any, name: str) -> str:
    value = (message.properties or {}).get(name)
    return value if isinstance(value, str) else ""
