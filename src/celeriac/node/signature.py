"""A call written down: to be made later, by another, or when a task has ended."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack

from celeriac.config import Settings
from celeriac.errors import CallerError, PeerError
from celeriac.model.signature import TaskSignature
from celeriac.node.call_options import CALL_OPTIONS, CallOptions, read_signatures
from celeriac.node.task_options import check_names
from celeriac.wire.signature import read_signature, spell_signature

if TYPE_CHECKING:
    from celeriac.node.result import AsyncResult

__all__ = ["Caller", "Signature"]


class Caller(Protocol):
    """Who makes calls: an app."""

    @property
    def conf(self) -> Settings:
        """The settings in force."""

    def send_task(
        self,
        name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> "AsyncResult":
        """Send a task by its name; return its result, to wait for."""

    def elect_task(
        self,
        signature: "Signature",
        *,
        id: str | None = None,  # noqa: A002
        mode: str = "once",
        force: bool = False,
        timeout: float = 1.0,
    ) -> "AsyncResult":
        """Have workers elect one of them that sends a task; return its result, to wait for."""


class Signature:
    """A task with its arguments and options, not yet called.

    It can be called (``delay``, ``apply_async``), given to another call as ``link`` or ``link_error``, or
    sent as an argument. Celery reads its dict.
    """

    def __init__(
        self,
        task: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        subtask_type: str | None = None,
        caller: Caller | None = None,
    ) -> None:
        #: The name of the task.
        self.task = task
        self.args = tuple(args)
        self.kwargs = dict(kwargs or {})
        #: As ``apply_async`` takes them.
        self.options = dict(options or {})
        #: Whether the result of the task before it is not put in front of the arguments.
        self.immutable = immutable
        #: What it is if it is no single task; only Celery can call those.
        self.subtask_type = subtask_type
        self._caller = caller

    @classmethod
    def from_dict(cls, spelled: Mapping[str, Any], *, caller: Caller | None = None) -> Self:
        """Return the signature of a dict; raises CallerError for an invalid one."""
        try:
            read = read_signature(dict(spelled))
        except PeerError:
            raise CallerError(
                "a signature is a dict of task, args, kwargs, options, subtask_type and immutable, not "
                f"{spelled!r:.80}"
            ) from None
        return cls(
            read.task,
            read.args,
            read.kwargs,
            read.options,
            immutable=read.is_immutable,
            subtask_type=read.subtask_type,
            caller=caller,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as Celery writes it, signatures in its options too."""
        options = self.options
        links = {name: list(read_signatures(name, options[name])) for name in _LINKS if options.get(name)}
        return spell_signature(
            TaskSignature(
                self.task, self.args, self.kwargs, {**options, **links}, self.subtask_type, self.immutable
            )
        )

    __json__ = to_dict

    # -- making others of it

    def clone(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> "Signature":
        """Return a copy, with ``args`` before its own, and ``kwargs`` and options over its own.

        Of one that is immutable only the options change.
        """
        _check(options)
        has_more = not self.immutable
        return Signature(
            self.task,
            (*args, *self.args) if has_more else self.args,
            {**self.kwargs, **(kwargs or {})} if has_more else self.kwargs,
            {**self.options, **options},
            immutable=self.immutable,
            subtask_type=self.subtask_type,
            caller=self._caller,
        )

    def set(self, immutable: bool | None = None, **options: Unpack[CallOptions]) -> Self:
        """Change its options, and return it."""
        _check(options)
        if immutable is not None:
            self.immutable = immutable
        self.options |= options
        return self

    def link(self, signature: "Signature") -> "Signature":
        """Have another called with the result; return that."""
        self._add("link", signature)
        return signature

    def link_error(self, signature: "Signature") -> "Signature":
        """Have another called if the task fails; return that."""
        self._add("link_error", signature)
        return signature

    def on_error(self, signature: "Signature") -> Self:
        """Have another called if the task fails; return this one."""
        self._add("link_error", signature)
        return self

    def _add(self, name: str, signature: "Signature") -> None:
        there = self.options.get(name)
        several = [] if there is None else list(there) if isinstance(there, list | tuple) else [there]
        if signature not in several:
            several.append(signature)
        self.options[name] = several

    # -- calling it

    def delay(self, *args: Any, **kwargs: Any) -> "AsyncResult":
        """Send the task, with these arguments before its own."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> "AsyncResult":
        """Send the task, with ``args`` before its own, and ``kwargs`` and options over its own."""
        caller = self._its_caller()
        whole = self.clone(args or (), kwargs, **options)
        return caller.send_task(whole.task, whole.args, whole.kwargs, **whole.options)

    def election(
        self,
        *,
        id: str | None = None,  # noqa: A002
        mode: str = "once",
        force: bool = False,
        timeout: float = 1.0,
    ) -> "AsyncResult":
        """Let the workers elect one of them, which sends the task; return its result.

        The same ``id``, by default a new one, sends the same task, once. Celeriac workers only send
        tasks in their setting ``election_actions``. Other arguments are as in ``app.control.election``.
        """
        return self._its_caller().elect_task(self, id=id, mode=mode, force=force, timeout=timeout)

    def _its_caller(self) -> Caller:
        if self._caller is None:
            raise CallerError(f"cannot call {self!r:.80}: create it with app.signature(…) or task.s(…)")
        if self.subtask_type in _SEVERAL:
            raise CallerError(
                f"a {self.subtask_type} has several tasks, and only Celery can call it: {self!r:.80}"
            )
        return self._caller

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> tuple[object, ...]:
        return (self.task, self.args, self.kwargs, self.options, self.immutable, self.subtask_type)

    def __repr__(self) -> str:
        # Not what it is called with: that may be secret.
        return f"<Signature {self.task}>"


_LINKS = ("link", "link_error")
_SEVERAL = ("group", "chain", "chord", "chunks")


def _check(options: Mapping[str, Any]) -> None:
    check_names(options, CALL_OPTIONS, of="a call")
