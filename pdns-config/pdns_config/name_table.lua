-- Loaded by PowerDNS (lua-prequery-script). Answers "no such name" itself where the table of names, which the
-- rspdns backend writes beside its socket, proves it: the backend is asked nothing. Everything else goes on.
--
-- PowerDNS asks a remote backend twice for each label of a name that does not exist. A flood of such names
-- would take all of its connections; here each costs a few microseconds.
--
-- This file is root's; the table is the backend's, another user, and data: it is never run, and what it holds is
-- bounded. For another socket a script of root's sets RSPDNS_NAMES to the table's path and runs this file (dofile).
local TABLE = RSPDNS_NAMES or "/run/rspdns/remote.sock.names"
-- The backend writes no more than this (rspdns.pdns.name_table). The first line is a SHA-256.
local MAX_BYTES, MAX_LINES, FIRST_BYTES = 4194304, 20000, 65
local find, sub, match = string.find, string.sub, string.match
local ADDRESS_OF_AUTHORITY, NXDOMAIN = 2, 3
-- Kinds of names: what may be below them beside the names of the table.
local NOTHING, MEMBERS = "=", "+" -- anything else: not known here

local generation, looked_at = "", -1
local kinds, soas, most_labels = {}, {}, 0

local function read_again()
  local file = io.open(TABLE, "r")
  if not file then return end -- the backend is gone: what it served is still right
  local first = file:read(FIRST_BYTES)
  if first and first ~= generation then
    generation, kinds, soas, most_labels = first, {}, {}, 0
    local body = file:read(MAX_BYTES + 1) or ""
    if #body > MAX_BYTES then body = "" end -- not the backend's: it proves nothing
    local new_kinds, new_soas, most, soa, lines = {}, {}, 0, nil, 0
    for line in string.gmatch(body, "[^\n]+") do
      lines = lines + 1
      if lines > MAX_LINES then file:close() return end
      local kind, rest = sub(line, 1, 1), sub(line, 3)
      if kind == "Z" then
        local zone, ttl, content = match(rest, "^(%S+) (%d+) (.+)$")
        soa = newDR(newDN(zone), "SOA", tonumber(ttl), content, ADDRESS_OF_AUTHORITY)
      else
        local _, dots = string.gsub(rest, "%.", "")
        new_kinds[rest], new_soas[rest] = kind, soa
        if dots + 1 > most then most = dots + 1 end
      end
    end
    kinds, soas, most_labels = new_kinds, new_soas, most
  end
  file:close()
end

function prequery(reply)
  local now = os.time()
  if now ~= looked_at then
    looked_at = now
    -- A table that can't be read proves nothing, until there is another; an error here would be SERVFAIL.
    pcall(read_again)
  end
  if most_labels == 0 then return false end
  local name, qtype = reply:getQuestion()
  if qtype == 46 or (qtype >= 249 and qtype <= 255) then return false end -- RRSIG, TKEY, TSIG, transfers, ANY
  name = string.lower(name)
  if find(name, "\\", 1, true) then name = string.gsub(name, "\\[%.\\]", "?") end -- dots that part no labels
  -- The positions of the name's labels, the last ones only: no name of the table has more.
  local starts, labels, at = { 1 }, 1, 1
  while true do
    local dot = find(name, ".", at, true)
    if not dot or dot == #name then break end
    labels, at = labels + 1, dot + 1
    starts[labels] = at
  end
  local first = labels - most_labels + 1
  if first < 1 then first = 1 end
  for place = first, labels do
    local ancestor = sub(name, starts[place], -2)
    local kind = kinds[ancestor]
    if kind then
      local is_below = place > 1
      if not soas[ancestor] or not is_below or (kind ~= NOTHING and (kind ~= MEMBERS or place == 2)) then return false end
      reply:setRcode(NXDOMAIN)
      reply:addRecords({ soas[ancestor] })
      return true
    end
  end
  return false
end
