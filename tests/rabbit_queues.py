"""Counts of messages and queues in a RabbitMQ, in milliseconds: ``rabbitmqctl`` takes a CPU second."""

from celeriac.testing.brokers import RabbitServer

__all__ = ["count_messages", "count_queues"]


def count_messages(server: RabbitServer, queue: str) -> int:
    """Return the number of messages in a queue of the first virtual host that are not acknowledged."""
    return int(
        server.evaluate(
            f'{{ok, Queue}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)), '
            "[{messages, Messages}] = rabbit_amqqueue:info(Queue, [messages]), Messages"
        )
    )


def count_queues(server: RabbitServer, text: str) -> int:
    """Return the number of queues in the first virtual host whose names contain a text."""
    return int(
        server.evaluate(
            "length([Name || {resource, _, queue, Name} <- rabbit_amqqueue:list_names(), "
            f'binary:match(Name, <<"{text}">>) =/= nomatch])'
        )
    )
