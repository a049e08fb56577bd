"""What Redis does in one step, so that no message is lost or doubled if we end in the midst of it.

An envelope is never parsed there: the JSON of Redis would turn an empty list into an empty table.
"""

from typing import Final

__all__ = ["RETURN_DUE", "SET_ASIDE", "TAKE", "TAKE_BACK"]

#: Takes envelopes off the right end of lists and writes each into the table of what is unsettled.
#: KEYS: that table, its index, then the lists, those of all queues for each step of priority.
#: ARGV: how many at most; bytes after which no more are taken; the moment; the beginning of the tags
#: and the first number after it; the number of queues; the ending of an entry for each queue.
#: Returns the queue, counted from 0, and the envelope of each. A list is shortened last: where memory
#: is short Redis refuses what writes, and not what deletes.
TAKE: Final = """
local room, bytes, number = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[5])
local queues, taken = tonumber(ARGV[6]), {}
for first = 3, #KEYS, queues do
  local is_any = true
  while is_any do
    is_any = false
    for queue = 0, queues - 1 do
      local envelope = room > 0 and bytes > 0 and redis.call('LINDEX', KEYS[first + queue], -1)
      if envelope then
        local tag = ARGV[4] .. string.format('%012.0f', number)
        redis.call('ZADD', KEYS[2], ARGV[3], tag)
        redis.call('HSET', KEYS[1], tag, '[' .. envelope .. ARGV[7 + queue])
        redis.call('RPOP', KEYS[first + queue])
        taken[#taken + 1] = queue
        taken[#taken + 1] = envelope
        room, bytes, number, is_any = room - 1, bytes - #envelope, number + 1, true
      end
    end
  end
end
return taken
"""

#: Removes an entry from the table of what is unsettled and puts its message into lists, at their right
#: end; nothing if the entry is gone, or was taken later than a moment: then another has seen to it.
#: KEYS: the table, its index, the lists. ARGV: the tag, the moment, the envelope. Returns 1 if it did, 0 if
#: not, and -1 if it cannot: anyone may write into the table, and name as a queue what is no list.
TAKE_BACK: Final = """
local taken_at = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not taken_at or tonumber(taken_at) > tonumber(ARGV[2]) then
  return 0
end
for list = 3, #KEYS do
  local kind = redis.call('TYPE', KEYS[list]).ok
  if kind ~= 'list' and kind ~= 'none' then
    return -1
  end
end
for list = 3, #KEYS do
  redis.call('RPUSH', KEYS[list], ARGV[3])
end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
"""

#: Moves the message of an entry of ours out of the table of what is unsettled into a sorted set, by the time
#: it is to return. KEYS: the table and its index. ARGV: the tag, the time, the ending of the entry, the set.
#: Returns 1 if it did, 0 if the entry is gone, and -1 if it cannot: the set is a key of another type, or this
#: user may not use it. For that reason it is no key of the call, which would be refused as a whole.
#: The tag is before each envelope, because a set has each member once, and two messages may be alike.
SET_ASIDE: Final = """
local set = ARGV[4]
local kind = redis.pcall('TYPE', set).ok
if kind ~= 'zset' and kind ~= 'none' then
  return -1
end
local entry = redis.call('HGET', KEYS[1], ARGV[1])
if not entry then
  return 0
end
if redis.pcall('ZADD', set, ARGV[2], ARGV[1] .. ' ' .. string.sub(entry, 2, -1 - #ARGV[3])) ~= 1 then
  return -1
end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[1], ARGV[1])
return 1
"""

#: Puts messages that were set aside, and whose time has come, at the end of their lists.
#: KEYS: the lists. ARGV: the time, how many at most of each set, and for each list its set, no key as above.
#: Returns how many are still aside.
RETURN_DUE: Final = """
local left = 0
for list = 1, #KEYS do
  local set = ARGV[2 + list]
  if redis.pcall('TYPE', set).ok == 'zset' then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', set, '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])) do
      redis.call('LPUSH', KEYS[list], string.sub(member, (string.find(member, ' ', 1, true) or 0) + 1))
      redis.call('ZREM', set, member)
    end
    left = left + redis.call('ZCARD', set)
  end
end
return left
"""
