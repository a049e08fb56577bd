"""Scripts that run within Redis, each in one step that nobody else can come between."""

from collections.abc import Iterator, Sequence
from hashlib import sha1
from typing import Final

from celeriac.transport.redis_link import Command

__all__ = ["CLOSE_CHORD", "END_PART", "STORED", "STORE_RESULT", "SUCCEEDED", "Script"]


class Script:
    """A script, and how it is called."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._digest = sha1(text.encode(), usedforsecurity=False).hexdigest()

    def calls(self, arguments: Sequence[Command]) -> Iterator[Command]:
        """Yield a command for each call, to be written in one go; the words begin with the number of keys.

        The first brings the text along, so that the others find it: no server need have seen it before.
        """
        for place, words in enumerate(arguments):
            yield ("EVALSHA", self._digest, *words) if place else ("EVAL", self.text, *words)


#: What :data:`STORE_RESULT` says: the document is stored, now or before; a success stands, and it is
#: another. Anything else: it is not for a script to say, or to do.
STORED, SUCCEEDED = 1, 0

#: Stores a document, unless one of a success is stored, and tells who listens. Takes the key, the
#: document, and for how many seconds it is kept, 0 for ever. The status is looked for where Celery and
#: we write it, or else, in a document that is not long, by reading it. What is compressed cannot be read.
STORE_RESULT: Final = Script("""
local key, document, expires = KEYS[1], ARGV[1], ARGV[2]
local stored = redis.pcall('GET', key)
if type(stored) == 'table' and not string.find(stored.err, 'WRONGTYPE', 1, true) then
  return 3
end
if type(stored) == 'string' then
  local status = string.match(stored, '^{"status": ?"([%w_]+)"')
  if not status then
    if #stored > 65536 then
      return 2
    end
    local is_read, read = pcall(cjson.decode, stored)
    if not is_read or type(read) ~= 'table' then
      return 2
    end
    status = read.status
  end
  if status == 'SUCCESS' then
    return stored == document and 1 or 0
  end
end
-- Told first, which nobody can see: if that is not allowed, nothing is stored.
local told = redis.pcall('PUBLISH', key, document)
if type(told) == 'table' and told.err then
  return 3
end
local done
if expires == '0' then
  done = redis.pcall('SET', key, document)
else
  done = redis.pcall('SETEX', key, expires, document)
end
return done.err and 3 or 1
""")

#: Counts a part of a chord, unless it was counted before, and claims the chord if it was the last one: then
#: it returns all parts, and the header if one was saved. Takes the keys of a chord, the part and what
#: tells it from others, whether parts are in order and its place, the seconds that keys and a claim are
#: kept, and a token: whoever comes again with the token of the claim has it.
#: Celery: 5.7 does the same with the same keys; up to 5.6 ``seen`` and ``claim`` are not known.
END_PART: Final = Script("""
local parts, correction, size, seen, group, claim = unpack(KEYS)
local part, name, is_ordered, place = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4]
local expires, held, token = ARGV[5], ARGV[6], ARGV[7]
local holder = redis.call('GET', claim)
if holder == 'done' then
  return false
end
if redis.call('SISMEMBER', seen, name) == 0 then
  if is_ordered then
    redis.call('ZADD', parts, place, part)
  else
    redis.call('RPUSH', parts, part)
  end
  redis.call('SADD', seen, name)
end
if expires ~= '0' then
  for _, key in ipairs({parts, correction, size, seen, group}) do
    redis.call('EXPIRE', key, expires)
  end
end
local wanted = redis.call('GET', size)
local count = redis.call(is_ordered and 'ZCARD' or 'LLEN', parts)
if not wanted or count ~= tonumber(wanted) + tonumber(redis.call('GET', correction) or 0) then
  return false
end
if holder ~= token and not redis.call('SET', claim, token, 'NX', 'EX', held) then
  return false
end
return {redis.call(is_ordered and 'ZRANGE' or 'LRANGE', parts, 0, -1), redis.call('GET', group)}
""")

#: Forgets a chord whose claim is ours, and notes for a while that it is done. Takes the keys of a chord,
#: the token, and for how many seconds.
CLOSE_CHORD: Final = Script("""
local parts, correction, size, seen, group, claim = unpack(KEYS)
if redis.call('GET', claim) ~= ARGV[1] then
  return 0
end
redis.call('DEL', parts, correction, size, seen)
redis.call('SET', claim, 'done', 'EX', ARGV[2])
return 1
""")
