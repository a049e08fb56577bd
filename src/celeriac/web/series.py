"""Series as Prometheus takes them: labels that are safe to show, and each set of them once.

Names of peers may become alike when they are made safe to show. Prometheus refuses all that is scraped if a
series comes twice in it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import add
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from celeriac.core.series import BOUNDS, Histogram
from celeriac.views.text import visible

__all__ = ["counter", "gauge", "histogram"]

_LABEL_CHARS: Final = 200
_BOUNDS: Final = [*map(str, BOUNDS), "+Inf"]

#: The values of the labels, and the value of the series.
Samples = Iterable[tuple[tuple[str, ...], float]]


def counter(name: str, meaning: str, labels: Sequence[str], samples: Samples) -> CounterMetricFamily:
    """Return what only rises. What is alike is added up."""
    family = CounterMetricFamily(name, meaning, labels=labels)
    for values, value in _merged(samples, add).items():
        family.add_metric(values, value)
    return family


def gauge(
    name: str,
    meaning: str,
    labels: Sequence[str],
    samples: Samples,
    *,
    merge: Callable[[float, float], float] = add,
) -> GaugeMetricFamily:
    """Return what rises and falls. What is alike is added up, or else as ``merge`` says."""
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, value in _merged(samples, merge).items():
        family.add_metric(values, value)
    return family


def histogram(name: str, meaning: str, told: Mapping[str, Histogram]) -> HistogramMetricFamily:
    """Return how often something took how long, by name."""
    merged: dict[str, Histogram] = {}
    for label, each in told.items():
        whole = merged.setdefault(_label(label), Histogram())
        whole.counts = [*map(add, whole.counts, each.counts)]
        whole.sum += each.sum
    family = HistogramMetricFamily(name, meaning, labels=["name"])
    for label, whole in merged.items():
        buckets = list(zip(_BOUNDS, map(float, accumulate(whole.counts)), strict=True))
        family.add_metric([label], buckets, whole.sum)
    return family


def _merged(samples: Samples, merge: Callable[[float, float], float]) -> dict[tuple[str, ...], float]:
    merged: dict[tuple[str, ...], float] = {}
    for values, value in samples:
        labels = tuple(map(_label, values))
        merged[labels] = merge(merged[labels], value) if labels in merged else value
    return merged


def _label(text: str) -> str:
    return visible(text, _LABEL_CHARS)
