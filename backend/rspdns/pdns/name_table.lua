-- Loaded by PowerDNS (lua-prequery-script). Answers "no such name" itself where the table of names, which the
-- rspdns backend writes beside this file, proves it: the backend is asked nothing. Everything else goes on.
--
-- PowerDNS asks a remote backend twice for each label of a name that does not exist. A flood of such names
-- would take all of its connections; here each costs a few microseconds.
local TABLE = "@TABLE@"
local find, sub, match = string.find, string.sub, string.match
local ADDRESS_OF_AUTHORITY, NXDOMAIN = 2, 3
-- Kinds of names: what may be below them beside the names of the table.
local NOTHING, MEMBERS = "=", "+" -- anything else: not known here

local generation, looked_at = "", -1
local kinds, soas, most_labels = {}, {}, 0

local function read_again()
  local file = io.open(TABLE, "r")
  if not file then return end -- the backend is gone: what it served is still right
  local first = file:read("*l")
  if first and first ~= generation then
    local new_kinds, new_soas, most, soa = {}, {}, 0, nil
    for line in file:lines() do
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
    generation, kinds, soas, most_labels = first, new_kinds, new_soas, most
  end
  file:close()
end

function prequery(reply)
  local now = os.time()
  if now ~= looked_at then
    looked_at = now
    -- A table that can't be read proves nothing; an error here would be SERVFAIL.
    if not pcall(read_again) then generation, most_labels = "", 0 end
  end
  if most_labels == 0 then return false end
  local name, qtype = reply:getQuestion()
  if qtype == 46 or (qtype >= 249 and qtype <= 255) then return false end -- RRSIG, TKEY, TSIG, transfers, ANY
  name = string.lower(name)
  if find(name, "\\", 1, true) then name = string.gsub(name, "\\[%.\\]", "?") end -- dots that part no labels
  -- Where the labels of the name begin, the last ones only: no name of the table has more.
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
