"""A quick way to know that there is no secret in a text, for those who redact each event as it comes."""

from typing import Final

from celeriac.core.redaction import Redactor

__all__ = ["quicken"]

#: Shorter texts are shorter than forty bytes, and need not be matched with the second pattern.
_LONG: Final = 10


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

    def is_suspect(text: str) -> bool:
        try:
            return (long if len(text) >= _LONG else short).search(text) is not None
        except UnicodeEncodeError:  # half a character, which RE2 cannot be given
            return True

    redactor.is_suspect = is_suspect
    return redactor
