"""Settings that Celery has: in an app, and in the variables of its environment.

Celery is not imported here: a caller with an app has done so.
"""

from collections.abc import Mapping
from typing import Any, Final

from celeriac.config.kind import checked
from celeriac.config.source import Given, Types

__all__ = ["SHARED", "app_title", "read_app", "read_celery_environ"]

#: Settings with one meaning in Celery and here, which decide where messages go and where results are.
SHARED: Final = (
    *("broker_url", "result_backend", "task_routes"),
    *("broker_transport_options", "broker_use_ssl", "broker_login_method"),
    *("result_backend_transport_options", "redis_backend_use_ssl"),
    *("event_exchange", "event_queue_prefix", "event_queue_ttl", "event_queue_expires"),
    *("event_queue_exclusive", "event_queue_durable"),
    *("control_exchange", "control_queue_ttl", "control_queue_expires"),
    *("control_queue_exclusive", "control_queue_durable"),
    *("task_default_queue", "task_default_queue_type", "task_default_priority", "task_queue_max_priority"),
)
#: Celery's name for keeping no results.
_NO_BACKEND: Final = "disabled"


def read_app(types: Types, app: Any, default: object) -> Given:
    """Return the settings that a Celery app gives, checked, but for those that ``default`` has as well."""
    values = {name: getattr(app.conf, name, None) for name in SHARED}
    values |= {
        "broker_url": _broker_url(app.conf),
        "result_backend": _backend_url(app.conf.result_backend),
        "task_routes": _routes(app.conf.task_routes),
    }
    given = _checked(types, values, dict.fromkeys(values, app_title(app)))
    return {name: pair for name, pair in given.items() if pair[0] != getattr(default, name)}


def read_celery_environ(types: Types, environ: Mapping[str, str]) -> Given:
    """Return the settings in the variables that Celery itself reads, checked."""
    values = {
        "broker_url": environ.get("CELERY_BROKER_URL") or None,
        "result_backend": _backend_url(environ.get("CELERY_RESULT_BACKEND")),
    }
    return _checked(types, values, {name: f"variable CELERY_{name.upper()}" for name in values})


def _checked(types: Types, values: Mapping[str, object], sources: Mapping[str, str]) -> Given:
    return {
        name: (checked(name, types[name], value, sources[name]), sources[name])
        for name, value in values.items()
        if value is not None
    }


def app_title(app: Any) -> str:
    """Return the text that names an app as a source of settings."""
    return f"Celery app {app.main}" if app.main else "Celery app"


def _broker_url(conf: Any) -> str | None:
    url = conf.broker_url or conf.broker_read_url
    # Celery takes a list of URLs as well.
    return ";".join(url) if isinstance(url, list | tuple) else url


def _backend_url(url: object) -> str | None:
    if not isinstance(url, str) or url.partition(":")[0] in ("", _NO_BACKEND):
        return None
    # Celery takes the name of a backend alone, too: rpc, django-db.
    return url if "://" in url else f"{url}://"


def _routes(routes: Any) -> dict[str, object] | None:
    """Return the routes that are plain data: functions and regular expressions stay with Celery."""
    if routes is None:
        return None
    pairs: list[Any] = []
    for each in routes if isinstance(routes, list | tuple) else [routes]:
        pairs += each.items() if isinstance(each, Mapping) else [each] if isinstance(each, tuple) else []
    return {
        pattern: route
        for pattern, route in pairs
        if isinstance(pattern, str) and isinstance(route, str | Mapping)
    }
