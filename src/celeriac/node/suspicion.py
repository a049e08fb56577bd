"""A quick way to know that there is no secret in a text, for those who redact each event as it comes."""

from typing import Final

from celeriac.core.redaction import Redactor

__all__ = ["quicken"]

#: Shorter texts are shorter than forty bytes, and need not be matched with the second pattern.
_LONG: Final = 10
#: Texts that are known to have none, and how long they may be: 4 MB at the most.
_MOST_KNOWN: Final = 4096
_MOST_CHARS: Final = 1000


def quicken(redactor: Redactor) -> Redactor:
    """Have a redactor match texts with RE2 first, if that is installed; returns it.

    RE2 takes two microseconds where the rules take fifty and more, and never longer than a text is long.
    """
    try:
        import re2  # noqa: PLC0415  (comes with the extras of those who need it)
    except ImportError:
        return redactor
    options = re2.Options()
    options.never_capture, options.log_errors = True, False
    short = re2.compile(redactor.pattern, options)
    # Both at once: to call it takes longer than to match.
    long = re2.compile(f"{redactor.pattern}|{redactor.long_pattern}", options)

    # The worker that receives a task says again what its client said of it, and errors are often alike.
    clean: set[str] = set()

    def is_suspect(text: str) -> bool:
        if text in clean:
            return False
        try:
            if (long if len(text) >= _LONG else short).search(text) is not None:
                return True
        except UnicodeEncodeError:  # half a character, which RE2 cannot be given
            return True
        if len(text) <= _MOST_CHARS:
            if len(clean) >= _MOST_KNOWN:
                clean.clear()
            clean.add(text)
        return False

    redactor.is_suspect = is_suspect
    return redactor
