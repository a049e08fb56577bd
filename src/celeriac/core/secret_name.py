"""Names whose values are secret, as they stand in texts that users wrote.

The words are those of :mod:`celeriac.masking`. A setting is masked if its name so much as holds one; in the
arguments of tasks that would cost too much, so names are read word by word here, in any spelling:
``db_password``, ``userToken``, ``X-Api-Key``, ``PASSWORD2``.

- A word that cannot be mistaken makes a name secret wherever it stands: ``password``, ``secret``, ``token``.
- A word that others hold by chance has to be one of its own: ``auth`` and not ``author``, ``pin`` and not
  ``shipping``.
- A ``key`` is secret by the word before it, unless that is known to be harmless: ``stripe_key`` is,
  ``routing_key`` is not. A ``key`` alone is secret if its value looks random.
- A ``code`` is secret by the word before it: ``verification_code`` is, ``postal_code`` is not. A ``sid``, a
  ``ticket``, a ``pat``, an ``hmac`` or a ``code`` alone is secret if its value looks random.
- What a name ends with may say that it only tells *of* a secret: ``token_count``, ``password_field``,
  ``TokenExpired``.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from celeriac.masking import SECRET_WORDS

__all__ = [
    "BARE_KEYS",
    "BARE_NAMES",
    "CODE_OF",
    "SHORT_WORDS",
    "STEMS",
    "SecretNames",
    "is_counting",
    "words_of",
]

#: Words that are too short to be looked for within others.
SHORT_WORDS: Final = (
    *("pw", "psw", "pin", "otp", "totp", "cvv", "cvc", "ssn", "jwt", "csrf", "xsrf", "cred", "creds"),
    *("sig", "bearer", "psk"),
)
#: What neither of two words says alone.
_TOGETHER: Final = r"conn(?:ection)?[_\- ]?str(?:ing)?s?|(?:seed|recovery)[_\- ]?phrase"
#: What a text has to hold, in whatever case, to have a secret name in it that is none of the short words.
STEMS: Final = (
    *(word for word in SECRET_WORDS if word not in SHORT_WORDS),
    *("kennwort", "contrase"),
    _TOGETHER,
)
BARE_KEYS: Final = frozenset({"key", "keys"})
#: Names that are secret if their value looks random.
BARE_NAMES: Final = BARE_KEYS | {"sid", "ticket", "code", "pat", "hmac"}
#: Words before ``code`` that say it opens something.
CODE_OF: Final = frozenset({
    "access", "activation", "auth", "backup", "fa", "invite", "login", "mfa", "recovery", "reset",
    "security", "sms", "verification",
})  # fmt: skip

_WORD: Final = re.compile(r"[A-Z]{1,64}(?![a-z])|[A-Z]?[^\W\d_A-Z]{1,64}|\d{1,64}")
_SURE: Final = re.compile(
    r"passw|passphrase|passcode|passkey|passwd|pwd|secret(?!ar)|token(?!i[sz])|credential|cookie|signature"
    r"|apikey|^auth(?:ori[sz]ation|entication)$|(?:^|\D)dsn$|(?<!send)auth$|^oauth|^session$|^sessions$|sess(?:ion)?id$"
    r"|kennwort|contrase[nñ]|^passe$|session$|(?<!by)(?<!com)(?<!sur)(?<!tres)(?<!under)(?<!over)pass$"
)
_IS_TOGETHER: Final = re.compile(_TOGETHER, re.IGNORECASE)
#: Words that end in key and are no keys.
_NO_KEYS: Final = frozenset({"donkey", "hockey", "hotkey", "jockey", "lackey", "monkey", "turkey", "whiskey"})
#: Words before ``key`` that say it opens nothing.
_HARMLESS_KEYS: Final = frozenset({
    "arrow", "base", "blob", "bucket", "cache", "column", "composite", "config", "context", "data",
    "dedup", "dedupe", "deduplication", "dict", "doc", "document", "entity", "event", "extra",
    "feature", "field", "file", "flag", "foreign", "group", "hash", "idempotency", "image", "index",
    "issue", "item", "job", "json", "kafka", "label", "locale", "lock", "lookup", "map", "message",
    "meta", "metadata", "metric", "model", "natural", "object", "option", "order", "param", "parent",
    "partition", "path", "prefix", "primary", "project", "pub", "public", "queue", "range", "record",
    "redis", "registry", "root", "routing", "row", "s", "search", "setting", "settings", "shard",
    "sharding", "sort", "state", "storage", "surrogate", "tag", "task", "topic", "translation",
    "unique", "kms", "kv", "ssm",
})  # fmt: skip
#: What a name ends with that tells of a secret and is none.
_TELLS_OF: Final = frozenset({
    "age", "alg", "algorithm", "at", "attempts", "audience", "backend", "budget", "changed", "class",
    "cost", "count", "counts", "created", "denied", "dir", "disabled", "email", "enabled", "encoding",
    "engine", "error", "errors", "exception", "expiration", "expire", "expired", "expires", "expiry",
    "factory", "failed", "field", "fields", "file", "filename", "format", "generator", "hasher",
    "hashers", "host", "index", "invalid", "issuer", "kind", "len", "length", "lifetime", "limit",
    "manager", "mechanism", "method", "middleware", "mismatch", "missing", "name", "names", "path",
    "policy", "port", "prefix", "price", "provider", "rate", "required", "rotation", "scope", "scopes",
    "serializer", "size", "source", "status", "strength", "timeout", "ttl", "type", "updated", "usage",
    "used", "user", "username", "validator", "validators", "verified", "version", "view", "warning",
})  # fmt: skip
#: What may follow ``private`` in the name of something that is.
_PRIVATE: Final = frozenset({"pem", "jwk", "rsa", "seed", "exponent", "data"})
_COUNTS: Final = frozenset({"tokens", "sessions", "cookies", "secrets", "credentials", "keys"})
_COUNTED: Final = frozenset({"max", "min", "num", "total", "n", "count"})


def words_of(name: str) -> list[str]:
    """Return the words of a name in small letters, however they are joined."""
    return [word.lower() for word in _WORD.findall(name)]


def is_counting(name: str) -> bool:
    """Return whether a plain number under this name counts things, and so is no secret."""
    words = words_of(name)
    return bool(words) and (words[0] in _COUNTED or not _COUNTS.isdisjoint(words))


class SecretNames:
    """Tells names that are secret from those that are not. ``names`` are secret too, as words of a name."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._extra = tuple(f"_{'_'.join(words)}_" for words in map(words_of, names) if words)
        self._squashed = frozenset(each.replace("_", "") for each in self._extra)
        self.is_secret = lru_cache(4096)(self._is_secret)

    def _is_secret(self, name: str) -> bool:
        """Return whether a value under this name has to be masked."""
        words = words_of(name)
        while words and words[-1].isdigit():
            words.pop()
        if self._extra and self._is_extra(words_of(name)):
            return True
        if not words or words[-1] in _TELLS_OF:
            return False
        if any(word in SHORT_WORDS or _SURE.search(word) for word in words):
            return True
        is_code = words[-1] in ("code", "codes") and len(words) > 1 and words[-2] in CODE_OF
        return is_code or _is_key(words) or _IS_TOGETHER.search(name) is not None

    def _is_extra(self, words: list[str]) -> bool:
        joined = f"_{'_'.join(words)}_"
        return any(each in joined for each in self._extra) or "".join(words) in self._squashed


def _is_key(words: list[str]) -> bool:
    """Return whether these are the words of a key that opens something."""
    if "private" in words:
        after = words[words.index("private") + 1 :]
        return not after or "key" in after or after[0] in _PRIVATE
    if words[-1] == "id" and "key" in words:
        return "access" in words
    last = words[-1]
    if last in BARE_KEYS:
        if "azure" in words:
            return True
        return len(words) > 1 and words[-2] not in _HARMLESS_KEYS and not words[-2].isdigit()
    return last.endswith("key") and last not in _NO_KEYS and last[:-3] not in _HARMLESS_KEYS
