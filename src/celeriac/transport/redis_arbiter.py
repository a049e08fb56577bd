"""Elections decided by Redis: one script for each question, in one step that nobody can come between."""

import math
from typing import Any, Final

from celeriac.config import Settings
from celeriac.errors import AccessRefused, CallerError, ConnectionLost
from celeriac.model.election import Decision, Denied, Granted, Level, Mode, Record, RecordState
from celeriac.transport.arbiter import CALL_PATIENCE
from celeriac.transport.arbiter_check import check_key, check_note, check_ttl
from celeriac.transport.redis_arbiter_level import QUESTIONS, Standing, standing_of
from celeriac.transport.redis_arbiter_script import (
    CLAIM,
    FINISH,
    READ,
    READ_LEASES,
    RELEASE,
    RENEW,
)
from celeriac.transport.redis_call import Call, RedisCaller
from celeriac.transport.redis_dial import arbiter_dialer
from celeriac.transport.redis_link import Command
from celeriac.transport.redis_script import Script

__all__ = ["RedisArbiter"]

_UNSEEN: Final = Standing(Level.L1, "the settings of Redis were not checked yet")


class RedisArbiter:
    """Who decides elections, in a Redis; for any number of threads at once.

    Each new link is looked at first: what level holds is known before anything is granted. The time of
    a lease is that of the server.
    """

    def __init__(self, settings: Settings) -> None:
        self._dialer = arbiter_dialer(settings)
        self._caller = RedisCaller(self._dialer, greet=self._look_over)
        self._retain_ms = _milliseconds(settings.election_retain)
        # In braces: the keys of one namespace are kept in one place, which a script needs.
        self._prefix = f"{self._dialer.key_prefix}{{{settings.election_namespace}}}"
        self._standing = _UNSEEN

    @property
    def level(self) -> Level:
        """How far its promise holds, as it was when last looked at."""
        return self._standing.level

    @property
    def reason(self) -> str:
        """Why that level, in a sentence for people."""
        return self._standing.reason

    def look(self) -> Level:
        """Ask the server how it is set up, and return the level."""
        return self._caller.do(self._look_over, CALL_PATIENCE)

    def claim(
        self,
        key: str,
        owner: str,
        *,
        ttl: float,
        mode: Mode,
        floor: int = 0,
        timeout: float = CALL_PATIENCE,
    ) -> Decision:
        """Have a key granted, or learn who has it; the token is above ``floor``, the highest we know."""
        check_ttl(ttl)
        if floor < 0:
            raise CallerError(f"invalid floor {floor}: give the highest known token, or none")
        words = (owner, _milliseconds(ttl), self._retain_ms, mode, floor, f"{ttl:.6f}")
        word, *rest = self._run(CLAIM, key, *words, timeout=timeout)
        if word == b"granted":
            token, note = rest
            return Granted(int(token), note)
        if word == b"far":
            raise AccessRefused(
                f"the arbiter at {self._dialer.address} cannot grant {key!r} above token {floor}, which is "
                "a year ahead of its clock: correct the clock of the server, or find the source of that "
                "token"
            )
        holder, token, state, left_ms = rest
        return Denied(_text(holder), int(token), RecordState(_text(state)), left_ms / 1000)

    def renew(
        self,
        key: str,
        owner: str,
        token: int,
        *,
        ttl: float,
        note: bytes | None = None,
        timeout: float = CALL_PATIENCE,
    ) -> bool:
        """Prolong a lease from now on, and leave a note for who follows; say whether it was still ours."""
        check_ttl(ttl)
        check_note(note)
        words = (owner, token, _milliseconds(ttl), self._retain_ms, int(note is not None), note or b"")
        return self._is_done(RENEW, key, *words, timeout=timeout)

    def finish(
        self,
        key: str,
        owner: str,
        token: int,
        *,
        is_failed: bool = False,
        timeout: float = CALL_PATIENCE,
    ) -> bool:
        """Note that what was to be done is done: nobody is granted it for ``election_retain`` seconds."""
        state = RecordState.FAILED if is_failed else RecordState.DONE
        return self._is_done(FINISH, key, owner, token, self._retain_ms, state, timeout=timeout)

    def release(self, key: str, owner: str, token: int, *, timeout: float = CALL_PATIENCE) -> bool:
        """Let others have a key; say whether it was still ours. Of mode ``once`` it never is let go.

        Where a link was lost it may be done and say False: it is ours no more.
        """
        return self._is_done(RELEASE, key, owner, token, timeout=timeout)

    def read(self, key: str) -> Record | None:
        """Return what stands of a key."""
        word, *fields = self._run(READ, key, timeout=CALL_PATIENCE)
        return None if word == b"no" else _record(key, fields)

    def leases(self) -> list[Record]:
        """Return the leases that are held now: a thousand of them, at the most."""
        keys = self._keys("")
        _, *found = self._ask(READ_LEASES, (len(keys), *keys, *keys[:2]), CALL_PATIENCE)
        return [_record(_text(name), fields) for name, *fields in found]

    def close(self) -> None:
        """End the links; to call anything again makes new ones, each for one call."""
        self._caller.close()
        self._dialer.close()

    # -- asking

    def _is_done(self, script: Script, key: str, *words: str | bytes | int, timeout: float) -> bool:
        return bool(self._run(script, key, *words, timeout=timeout)[0] == b"yes")

    def _run(self, script: Script, key: str, *words: str | bytes | int, timeout: float) -> list[Any]:
        check_key(key)
        keys = self._keys(key)
        return self._ask(script, (len(keys), *keys, key, *words), timeout)

    def _ask(self, script: Script, words: Command, timeout: float) -> list[Any]:
        (command,) = script.calls([words])
        try:
            (answer,) = self._caller.do(lambda call: call.exchange(command), timeout)
        except ConnectionLost as error:
            if "unknown command" in str(error):  # to try again would be no use
                raise AccessRefused(
                    f"the arbiter at {self._dialer.address} does not run scripts: allow EVAL, or name "
                    "another server in election_url"
                ) from error
            raise
        if answer[0] == b"odd":
            raise AccessRefused(
                f"the key {_text(answer[1])!r} of the arbiter at {self._dialer.address} is not an election "
                "record: delete it, or change election_namespace"
            )
        return list(answer)

    def _keys(self, key: str) -> tuple[str, str, str, str]:
        """Return the keys of a record and of its note, and those of the last token and of all leases."""
        prefix = self._prefix
        return f"{prefix}:el:{key}", f"{prefix}:note:{key}", f"{prefix}:epoch", f"{prefix}:leases"

    def _look_over(self, call: Call) -> Level:
        self._standing = standing_of(call.attempt(*QUESTIONS), is_sentinel=self._dialer.is_sentinel)
        return self._standing.level


def _record(key: str, fields: list[Any]) -> Record:
    owner, token, mode, state, ttl, since, left_ms, note = fields
    return Record(
        key,
        _text(owner),
        int(token),
        Mode(_text(mode)),
        RecordState(_text(state)),
        float(ttl),
        left_ms / 1000,
        float(since),
        note,
    )


def _milliseconds(seconds: float) -> int:
    """Return whole milliseconds, no fewer: a lease must not end before who holds it thinks so."""
    return max(1, math.ceil(seconds * 1000))


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
