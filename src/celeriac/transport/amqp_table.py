"""The headers of an AMQP message, in bytes: py-amqp's own reading takes longer than all the rest of a task.

What is spelled and read here, py-amqp reads and spells alike, but for dates and decimals, which no
header of a task has: those are read as numbers, and not spelled.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NoReturn

from celeriac.errors import CallerError

__all__ = ["read_table", "spell_table"]

#: Tables and lists within each other; more than anybody needs.
_MAX_DEPTH: Final = 32

_SIZE: Final = Struct(">I")
_TEXT: Final = Struct(">cI")
_INT: Final = Struct(">ci")
_LONG: Final = Struct(">cq")
_FLOAT: Final = Struct(">cd")
_DECIMAL: Final = Struct(">Bi")
_TEXT_KIND, _NOTHING_KIND = ord("S"), ord("V")

#: How each kind of number is read.
_NUMBERS: Final[Mapping[int, Struct]] = {
    ord(kind): Struct(f">{spelled}")
    for kind, spelled in {
        "b": "b",
        "B": "B",
        "s": "h",
        "U": "h",
        "u": "H",
        "I": "i",
        "i": "I",
        "l": "q",
        "L": "q",
        "f": "f",
        "d": "d",
        "t": "?",
        "T": "Q",
    }.items()
}


def spell_table(table: Mapping[str, object], depth: int = 0) -> bytes:
    """Return a table in bytes, its length first."""
    parts = []
    for name, value in table.items():
        parts.append(_spell_name(name))
        spell = _SPELLERS.get(type(value))
        parts.append(_spell_odd(value, depth) if spell is None else spell(value, depth))
    spelled = b"".join(parts)
    return _SIZE.pack(len(spelled)) + spelled


def read_table(data: bytes, start: int, end: int, depth: int = 0) -> dict[str, Any]:
    """Return the table that lies between two places, without its length.

    Raises ValueError if it is not spelled well. What is text but not Unicode comes as bytes.
    """
    table: dict[str, Any] = {}
    at = start
    try:
        while at < end:
            name_end = at + 1 + data[at]
            name = data[at + 1 : name_end].decode()
            kind = data[name_end]
            if kind == _TEXT_KIND:  # these two are most of them, so without a call
                at = name_end + 5 + _SIZE.unpack_from(data, name_end + 1)[0]
                value = data[name_end + 5 : at]
                try:
                    table[name] = value.decode()
                except UnicodeDecodeError:
                    table[name] = value
            elif kind == _NOTHING_KIND:
                table[name], at = None, name_end + 1
            else:
                table[name], at = _read_value(data, name_end, depth)
    except (IndexError, struct_error) as error:
        raise ValueError("truncated table") from error
    if at != end or end > len(data):
        raise ValueError("the length of a table is wrong")
    return table


def _read_value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    kind = data[at]
    at += 1
    number = _NUMBERS.get(kind)
    if number is not None:
        return number.unpack_from(data, at)[0], at + number.size
    if kind == _NOTHING_KIND:
        return None, at
    if kind == ord("D"):
        places, digits = _DECIMAL.unpack_from(data, at)
        return digits / 10**places, at + _DECIMAL.size
    (size,) = _SIZE.unpack_from(data, at)
    start, end = at + _SIZE.size, at + _SIZE.size + size
    read = _LONG_KINDS.get(kind)
    # Whatever is in it: a length that leads beyond the end must not be believed.
    if read is None or end > len(data) or depth >= _MAX_DEPTH:
        raise ValueError("a value has an unknown type, is too long, or is nested too deep")
    return read(data, start, end, depth + 1), end


def _read_text(data: bytes, start: int, end: int, _: int) -> str | bytes:
    try:
        return data[start:end].decode()
    except UnicodeDecodeError:
        return data[start:end]


def _read_bytes(data: bytes, start: int, end: int, _: int) -> bytes:
    return data[start:end]


def _read_list(data: bytes, at: int, end: int, depth: int) -> list[Any]:
    values = []
    while at < end:
        value, at = _read_value(data, at, depth)
        values.append(value)
    if at != end:
        raise ValueError("the length of a list is wrong")
    return values


#: How what begins with its length is read.
_LONG_KINDS: Final[Mapping[int, Callable[[bytes, int, int, int], Any]]] = {
    ord("S"): _read_text,
    ord("x"): _read_bytes,
    ord("F"): read_table,
    ord("A"): _read_list,
}


@lru_cache(maxsize=512)
def _spell_name(name: str) -> bytes:
    data = name.encode("utf-8", "surrogatepass")
    if len(data) > 255:
        raise CallerError(f"the header name {name[:40]!r}... is too long: shorten it to 255 bytes")
    return bytes([len(data)]) + data


def _spell_text(value: str, _: int) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return _TEXT.pack(b"S", len(data)) + data


def _spell_bytes(value: bytes, _: int) -> bytes:
    return _TEXT.pack(b"S", len(value)) + value


def _spell_int(value: int, _: int) -> bytes:
    if -(2**31) < value < 2**31:
        return _INT.pack(b"I", value)
    if -(2**63) <= value < 2**63:
        return _LONG.pack(b"l", value)
    raise CallerError(
        f"a header has a number of {value.bit_length()} bits: send it as string, or in the body"
    )


def _spell_float(value: float, _: int) -> bytes:
    return _FLOAT.pack(b"d", value)


def _spell_bool(value: object, _: int) -> bytes:
    return b"t\1" if value else b"t\0"


def _spell_none(_value: object, _: int) -> bytes:
    return b"V"


def _spell_fields(value: Mapping[str, object], depth: int) -> bytes:
    if depth >= _MAX_DEPTH:
        _refuse_depth()
    return b"F" + spell_table({str(name): each for name, each in value.items()}, depth + 1)


def _spell_list(value: list[object] | tuple[object, ...], depth: int) -> bytes:
    if depth >= _MAX_DEPTH:
        _refuse_depth()
    parts = []
    for each in value:
        spell = _SPELLERS.get(type(each))
        parts.append(_spell_odd(each, depth + 1) if spell is None else spell(each, depth + 1))
    spelled = b"".join(parts)
    return b"A" + _SIZE.pack(len(spelled)) + spelled


def _spell_odd(value: object, depth: int) -> bytes:
    """Spell what is of a kind derived from one that can be."""
    for kind, spell in _SPELLERS.items():
        if isinstance(value, kind):
            return spell(value, depth)
    if isinstance(value, Mapping):
        return _spell_fields(value, depth)
    raise CallerError(
        f"a header cannot hold {type(value).__name__}: use strings, numbers, lists and dicts of them"
    )


def _refuse_depth() -> NoReturn:
    raise CallerError(f"a header nests more than {_MAX_DEPTH} lists or dicts: flatten it")


_SPELLERS: Final[dict[type, Callable[[Any, int], bytes]]] = {
    str: _spell_text,
    bool: _spell_bool,
    int: _spell_int,
    float: _spell_float,
    type(None): _spell_none,
    list: _spell_list,
    tuple: _spell_list,
    dict: _spell_fields,
    bytes: _spell_bytes,
}
