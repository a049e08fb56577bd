"""Which queues of a broker in memory a message comes into."""

from celeriac.model.message import Exchange, Message, Queue, topic_leads_to

__all__ = ["leads_to"]


def leads_to(exchange: Exchange, message: Message, queue: Queue) -> bool:
    """Say whether a message that is published to an exchange comes into a queue."""
    if not exchange.name:  # the default exchange: every queue is bound by its own name
        return queue.name == message.routing_key
    if queue.exchange.name != exchange.name:
        return False
    match exchange.type:
        case "fanout":
            return True
        case "direct":
            return queue.routing_key == message.routing_key
        case "topic":
            return topic_leads_to(queue.routing_key, message.routing_key)
