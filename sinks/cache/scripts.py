"""The Lua scripts that compare a version and write in one atomic step. Text only.

A version mark is ``<version><flag><tag><key>``. The version is the offset as 19 digits, because Lua numbers are
doubles, and texts of equal width compare like numbers. The flag is ``r`` (a row), ``d`` (deleted) or ``i`` (a row that
is not stored). The tag is six digits of a hash of the topic's id, because offsets of another topic cannot be compared.
The key is as the topic has it. The mark is a key of its own, so that readers get a row, and nothing else, with one
command.

Each script takes many keys and packs their arguments with MessagePack, because a client spends most of its time on
writing single arguments. It returns one letter per key: ``D`` done, ``O`` overtaken, ``S`` other topic. The first write
of a chunk of rows is one that a full store refuses, and the store checks its memory only at the first write. So a full
store refuses a chunk as a whole. Deletes are sent in separate chunks, because they are never refused.
https://redis.io/docs/latest/develop/programmability/eval-intro/ (script flags, absence of them).
"""

from __future__ import annotations

from typing import Final

STATE: Final = 26
"""Length of a mark without the key: version, flag and tag."""

_JUDGE: Final = """
local function judged(old, new)
  if not old or #old < 26 then return 'new' end
  if string.sub(old, 21, 26) ~= string.sub(new, 21, 26) then return 'S' end
  local a, b = string.sub(old, 1, 19), string.sub(new, 1, 19)
  if a > b then return 'O' end
  if a == b and string.sub(old, 20, 20) == string.sub(new, 20, 20) then return 'same' end
  return 'new'
end
local function judge(mark, new)
  return judged(redis.call('GETRANGE', mark, 0, 25), new)
end
local function put(key, value, ttl)
  if ttl == '0' then redis.call('SET', key, value) else redis.call('SET', key, value, 'PX', ttl) end
end
local out = {}
"""

GONE: Final = (
    _JUDGE
    + """
-- KEYS: row, mark, row, mark, ...; ARGV: time to live of marks in ms, and packed a mark each
local packed = cmsgpack.unpack(ARGV[2])
for i = 1, #KEYS / 2 do
  local new = packed[i]
  local verdict = judge(KEYS[2 * i], new)
  if verdict == 'new' then
    redis.call('DEL', KEYS[2 * i - 1])
    put(KEYS[2 * i], new, ARGV[1])
    verdict = 'D'
  elseif verdict == 'same' then
    verdict = 'O'
  end
  out[i] = verdict
end
return table.concat(out)
"""
)
"""Deletes rows: for deletes, and for all changes in mode `invalidate`."""

VALUES: Final = (
    _JUDGE
    + """
-- ARGV: time to live of rows and of their marks, and packed a mark and a value each
local packed, marks, sets, count = cmsgpack.unpack(ARGV[3]), {}, {}, 0
local lasting = ARGV[1] == '0' and ARGV[2] == '0'
for i = 1, #KEYS / 2 do marks[i] = KEYS[2 * i] end
local olds = redis.call('MGET', unpack(marks))
for i = 1, #KEYS / 2 do
  local key, mark, new, value = KEYS[2 * i - 1], KEYS[2 * i], packed[2 * i - 1], packed[2 * i]
  local verdict = judged(olds[i], new)
  if verdict == 'same' and redis.call('GET', key) == value then
    verdict = 'O'
  elseif verdict == 'new' or verdict == 'same' then
    if lasting then
      sets[count + 1], sets[count + 2], sets[count + 3], sets[count + 4] = mark, new, key, value
      count = count + 4
    else
      put(mark, new, ARGV[2])
      put(key, value, ARGV[1])
    end
    verdict = 'D'
  end
  out[i] = verdict
end
if count > 0 then redis.call('MSET', unpack(sets)) end
return table.concat(out)
"""
)
"""Writes rows as one value each. Writing the same version again repairs a lost or altered value.

A command inside a script costs about as much as outside. So one command reads all marks, and one writes all rows that
do not expire.
"""

SWAP: Final = (
    _JUDGE
    + """
-- ARGV: time to live of a row and of its mark, the mark that was seen, the new one, and a value, or none
local old = redis.call('GETRANGE', KEYS[2], 0, 25)
if old ~= ARGV[3] then return 'A' end
put(KEYS[2], ARGV[4], ARGV[2])
if #ARGV == 5 then put(KEYS[1], ARGV[5], ARGV[1]) else redis.call('DEL', KEYS[1]) end
return 'D'
"""
)
"""Writes a row that was completed with values from the store; ``A``: it changed in the meantime, try again."""

HASHES: Final = (
    _JUDGE
    + """
-- ARGV: time to live of rows and of their marks, whether incomplete rows are left out; and packed for each row its
-- mark, names and values of its fields, the kept columns, and how many of those it has no value for
local function equal(key, fields)
  if redis.call('HLEN', key) * 2 ~= #fields then return false end
  for j = 1, #fields, 2 do
    if redis.call('HGET', key, fields[j]) ~= fields[j + 1] then return false end
  end
  return true
end
local function whole(i, verdict, key, mark, new, fields, kept, u)
  local k, there = #kept, redis.call('EXISTS', key) == 1
  if verdict == 'same' and (there and k > 0 or not there and u > 0 or there and equal(key, fields)) then
    verdict = 'O'
  elseif verdict == 'new' or verdict == 'same' then
    put(mark, new, ARGV[2])
    local values = there and k > 0 and redis.call('HMGET', key, unpack(kept)) or {}
    if there then redis.call('DEL', key) end
    if there or u == 0 or ARGV[3] == '0' then
      redis.call('HSET', key, unpack(fields))
      for j = 1, k do
        if there and values[j] then redis.call('HSET', key, kept[j], values[j])
        elseif there then redis.call('HDEL', key, kept[j]) end
      end
      if ARGV[1] ~= '0' then redis.call('PEXPIRE', key, ARGV[1]) end
    end
    verdict = 'D'
  end
  out[i] = verdict
end
local packed, marks, sets, gone, rows = cmsgpack.unpack(ARGV[4]), {}, {}, {}, {}
local lasting = ARGV[1] == '0' and ARGV[2] == '0'
for i = 1, #KEYS / 2 do marks[i] = KEYS[2 * i] end
local olds = redis.call('MGET', unpack(marks))
for i = 1, #KEYS / 2 do
  local key, mark, at = KEYS[2 * i - 1], KEYS[2 * i], 4 * i - 3
  local new, fields, kept = packed[at], packed[at + 1], packed[at + 2]
  local verdict = judged(olds[i], new)
  if lasting and verdict == 'new' and #kept == 0 then
    sets[#sets + 1], sets[#sets + 2], gone[#gone + 1], rows[#rows + 1] = mark, new, key, fields
    out[i] = 'D'
  else
    whole(i, verdict, key, mark, new, fields, kept, packed[at + 3])
  end
end
if #gone > 0 then
  redis.call('MSET', unpack(sets))
  redis.call('DEL', unpack(gone))
  for i = 1, #gone do redis.call('HSET', gone[i], unpack(rows[i])) end
end
return table.concat(out)
"""
)
"""Writes rows as hashes. A kept column keeps its value in the store, or stays missing."""

REMOVE: Final = (
    _JUDGE
    + """
-- ARGV: time to live of marks, then for each row the version that was seen, or nothing, and the mark that stays
for i = 1, #KEYS / 2 do
  local seen, stays = ARGV[2 * i], ARGV[2 * i + 1]
  if string.sub(redis.call('GETRANGE', KEYS[2 * i], 0, 25), 1, 19) == seen then
    redis.call('DEL', KEYS[2 * i - 1])
    if stays ~= '' then put(KEYS[2 * i], stays, ARGV[1]) end
  end
end
return ''
"""
)
"""Removes rows that have not changed since they were read; a version mark stays."""

FORGET: Final = """
-- KEYS: row, mark, row, mark, ...; ARGV: for each row the version that was seen
for i = 1, #KEYS / 2 do
  if redis.call('GETRANGE', KEYS[2 * i], 0, 18) == ARGV[i] then redis.call('DEL', KEYS[2 * i - 1], KEYS[2 * i]) end
end
return ''
"""
"""Removes rows with their version marks, unless they changed since they were read."""

KEEP: Final = """
-- KEYS: the hash of positions; ARGV: the server run, then for each partition its name, old and new position
local server, replication = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
local life = string.match(server, 'run_id:(%x+)') .. ' ' .. string.match(replication, 'master_replid:(%x+)')
if life ~= ARGV[1] then return 'L' end
for i = 2, #ARGV, 3 do
  local now = redis.call('HGET', KEYS[1], ARGV[i])
  if ARGV[i + 1] ~= '' and (not now or now < ARGV[i + 1]) then return 'L' end
end
for i = 2, #ARGV, 3 do
  local now = redis.call('HGET', KEYS[1], ARGV[i])
  if not now or now < ARGV[i + 2] then redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2]) end
end
return 'D'
"""
"""Stores positions; ``L``: the store has lost writes since the positions were read.

It checks the run of the server again: a server can become a replica and a primary again without closing a connection.
"""
