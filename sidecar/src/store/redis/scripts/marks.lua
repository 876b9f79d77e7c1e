local function add_mark(p, mark)
  p.mark = p.mark ~= '' and string.sub(p.mark, 1, -2) .. ',' .. mark .. ']' or '[' .. mark .. ']'
  p.changed = true
end
