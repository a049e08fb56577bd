"""The rules of an arbiter as scripts that run within Redis: those of :mod:`celeriac.core.register`.

Each takes the same four keys: the record, its note, the last token and the index of leases. Each answers
with a word and what belongs to it: ``granted`` token, note; ``denied`` owner, token, state, milliseconds;
``yes`` and ``no``; ``odd`` with the name of a key that holds what nobody of us wrote; ``far`` for a floor
that no clock explains. All that can be odd is looked at before anything is written.
"""

from typing import Final

from celeriac.transport.redis_script import Script

__all__ = ["CLAIM", "FINISH", "MAX_LEASES", "READ", "READ_LEASES", "RELEASE", "RENEW"]

#: Leases that can be listed; beyond it those that end first are left out of the list, and stay valid.
MAX_LEASES: Final = 1000

#: How far a floor may be ahead of the server's clock, in microseconds: a year. A peer that lies must not use
#: up the tokens of everybody; a server whose clock was wrong by more is for people to look at.
_FAR: Final = 366 * 24 * 3600 * 1_000_000

#: Numbers of microseconds, and all tokens are some, are exact in Lua below 2^53.
_BEGIN: Final = """
local record_key, note_key, epoch_key, index_key = unpack(KEYS)

local function is_kind(key, kind)
  local found = redis.call('TYPE', key).ok
  return found == kind or found == 'none'
end

local function number(text)
  return type(text) == 'string' and #text <= 16 and string.match(text, '^%d+$') and tonumber(text)
end

local function is_decimal(text)
  return type(text) == 'string' and string.match(text, '^%d+%.%d+$')
end

local modes = {once = true, takeover = true, lease = true}
local states = {held = true, done = true, failed = true}

-- The record, or nil for none; and whether it is odd.
local function read(key)
  if not is_kind(key, 'hash') then
    return nil, true
  end
  local left = redis.call('PTTL', key)
  if left == -2 then
    return nil, false
  end
  local owner, token, mode, state, ttl, since = unpack(
    redis.call('HMGET', key, 'owner', 'token', 'mode', 'state', 'ttl', 'since'))
  if not (left >= 0 and owner and number(token) and modes[mode] and states[state]
      and is_decimal(ttl) and is_decimal(since)) then
    return nil, true
  end
  return {owner = owner, token = token, mode = mode, state = state, ttl = ttl, since = since, left = left}
end

local record, is_odd = read(record_key)
if is_odd then
  return {'odd', record_key}
end
if not is_kind(note_key, 'string') then
  return {'odd', note_key}
end
if not is_kind(index_key, 'zset') then
  return {'odd', index_key}
end

local function is_held(owner, token)
  return record and record.owner == owner and record.token == token and record.state == 'held'
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Let the record stand for so many milliseconds, and be listed if it is a lease.
local function keep(mode, name, milliseconds)
  redis.call('PEXPIRE', record_key, milliseconds)
  if mode == 'lease' then
    redis.call('ZREMRANGEBYSCORE', index_key, '-inf', now - 1)
    redis.call('ZADD', index_key, string.format('%.0f', now + milliseconds), name)
    redis.call('ZREMRANGEBYRANK', index_key, 0, -1 - MAX_LEASES)
  end
end
""".replace("MAX_LEASES", str(MAX_LEASES))

#: Takes the key's name, the owner, milliseconds of the lease and of what is kept, the mode, the floor, and
#: the ttl in seconds as it is told to others.
CLAIM: Final = Script(
    _BEGIN
    + """
local name, owner, lease, retain, mode, floor, ttl = unpack(ARGV)
if record and (record.owner ~= owner or record.state ~= 'held') then
  return {'denied', record.owner, record.token, record.state, record.left}
end
local token
if record then
  token, mode = record.token, record.mode
else
  local epoch = is_kind(epoch_key, 'string') and (redis.call('GET', epoch_key) or '0')
  if not number(epoch) then
    return {'odd', epoch_key}
  end
  local clock = time[1] * 1000000 + time[2]
  if tonumber(floor) > clock + FAR then
    return {'far'}
  end
  local higher = math.max(tonumber(epoch) + 1, tonumber(floor) + 1, clock)
  if higher >= 9007199254740992 then
    return {'odd', epoch_key}
  end
  token = string.format('%.0f', higher)
  redis.call('SET', epoch_key, token)
  redis.call('DEL', record_key)
  redis.call('HSET', record_key, 'owner', owner, 'token', token, 'mode', mode, 'state', 'held',
    'ttl', ttl, 'since', string.format('%s.%06d', time[1], time[2]))
end
keep(mode, name, tonumber(mode == 'once' and retain or lease))
return {'granted', token, redis.call('GET', note_key) or ''}
""".replace("FAR", str(_FAR))
)

#: Takes the key's name, the owner, the token, milliseconds of the lease and of what is kept, whether there is
#: a note, and the note. Notes outlive everything else: who leads after a long rest must know them too.
RENEW: Final = Script(
    _BEGIN
    + """
local name, owner, token, lease, retain, has_note, note = unpack(ARGV)
if not is_held(owner, token) then
  return {'no'}
end
if has_note == '1' then
  if note == '' then
    redis.call('DEL', note_key)
  else
    redis.call('SET', note_key, note)
  end
end
keep(record.mode, name, tonumber(record.mode == 'once' and retain or lease))
return {'yes'}
"""
)

#: Takes the key's name, the owner, the token, milliseconds to keep it, and the state.
FINISH: Final = Script(
    _BEGIN
    + """
local name, owner, token, retain, state = unpack(ARGV)
if not record or record.owner ~= owner or record.token ~= token then
  return {'no'}
end
redis.call('HSET', record_key, 'state', state)
redis.call('PEXPIRE', record_key, retain)
redis.call('ZREM', index_key, name)
return {'yes'}
"""
)

#: Takes the key's name, the owner and the token.
RELEASE: Final = Script(
    _BEGIN
    + """
local name, owner, token = unpack(ARGV)
if not is_held(owner, token) or record.mode == 'once' then
  return {'no'}
end
redis.call('DEL', record_key)
redis.call('ZREM', index_key, name)
return {'yes'}
"""
)

#: Answers ``yes`` with owner, token, mode, state, ttl, since, milliseconds and the note; or ``no``.
READ: Final = Script(
    _BEGIN
    + """
if not record then
  return {'no'}
end
return {'yes', record.owner, record.token, record.mode, record.state, record.ttl, record.since, record.left,
  redis.call('GET', note_key) or ''}
"""
)

#: Takes what records and notes begin with. Answers ``yes``, and for each lease its name and as :data:`READ`.
READ_LEASES: Final = Script(
    _BEGIN
    + """
local records, notes = unpack(ARGV)
local found = {'yes'}
for _, name in ipairs(redis.call('ZRANGE', index_key, 0, -1)) do
  local lease, is_lease_odd = read(records .. name)
  local has_note = is_kind(notes .. name, 'string')
  if is_lease_odd or not has_note then
    return {'odd', is_lease_odd and records .. name or notes .. name}
  end
  if lease and lease.mode == 'lease' and lease.state == 'held' then
    found[#found + 1] = {name, lease.owner, lease.token, lease.mode, lease.state, lease.ttl, lease.since,
      lease.left, redis.call('GET', notes .. name) or ''}
  end
end
return found
"""
)
