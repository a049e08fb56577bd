"""The facade: what it assembles, and that it shares."""

import pytest

from celeriac import Celeriac, ImproperlyConfigured, MemoryBroker


def test_all_parts_of_an_app_share_one_clock() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={})

    with app.events.Dispatcher() as dispatcher:
        dispatcher.send("worker-online")
        app.control.heartbeat()
        dispatcher.send("worker-heartbeat")

    assert app.clock.value == 3
    assert app.events.Receiver().gate is not app.events.Receiver().gate


def test_what_is_given_outranks_the_environment() -> None:
    environ = {"CELERIAC_BROKER_URL": "redis://one:6379/0", "CELERIAC_EVENT_EXCHANGE": "theirs"}

    app = Celeriac("redis://two:6379/0", environ=environ)

    assert app.conf.broker_url == "redis://two:6379/0"
    assert app.conf.event_exchange == "theirs"


def test_a_misspelled_setting_is_an_error_that_names_the_right_one() -> None:
    with pytest.raises(ImproperlyConfigured, match="event_queue_ttl"):
        Celeriac(MemoryBroker(), environ={}, event_queue_tll=3)


def test_a_state_is_as_large_as_the_settings_say() -> None:
    app = Celeriac(MemoryBroker(), environ={}, max_tasks_in_memory=7, max_workers_in_memory=3)

    state = app.events.State()

    assert (state.max_tasks_in_memory, state.max_workers_in_memory) == (7, 3)


def test_no_password_is_shown() -> None:
    app = Celeriac("redis://user:s3cret@127.0.0.1:1/0", environ={})

    assert "s3cret" not in repr(app)
    assert "s3cret" not in repr(app.conf)


def test_a_mailbox_answers_in_the_name_of_the_app() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={}, hostname="node@here")

    mailbox = app.mailbox()

    assert mailbox.hostname == "node@here"
    assert mailbox.clock is app.clock
